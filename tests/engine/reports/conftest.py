from __future__ import annotations

import copy
from typing import Any

import pytest

HOSTILE = "evil\x1b[31m\u202e<script>alert(1)</script>|`x` @all #1 https://bad.example ]]>\x00"
SECRET = "the hidden answer is 4711"


def finding(code: str, task: str | None = "t1", **changes: Any) -> dict[str, Any]:
    return {
        "id": f"fnd_{code}_{task}",
        "code": code,
        "rule_version": 1,
        "kind": "finding",
        "severity": "error",
        "waived": False,
        "task": task,
        "message": f"{code} saw something wrong.",
        "evidence": {"expected": 1.0, "seen": {"outcome": "reward", "reward": 0.0}},
        "location": "",
        "reproduce": f"qualityhub reproduce fnd_{code}_{task} --report report.json",
        "fingerprint": f"fp-{code}-{task}",
        "title": f"Title of {code}",
        "fix": "Fix it.",
        **changes,
    }


DOCUMENT: dict[str, Any] = {
    "schema": "qualityhub.inspection/1",
    "environment": {
        "name": "demo",
        "adapter": "humaneval",
        "digest": "qh1:" + "a" * 64,
        "tasks": 8,
        "provisional": False,
        "source": "envs/demo",
    },
    "verdict": "partial",
    "policy": {"name": "default", "effort": "certify", "version": "qh1:" + "b" * 64},
    "findings": [
        *(finding("VER001", f"t{index}") for index in range(1, 8)),
        finding(
            "VER003",
            "t8",
            severity="warning",
            evidence={
                "expected": "a number",
                "seen": [{"outcome": "crashed", "detail": "Traceback\nValueError: bad"}],
                "difference": {"what": "trace", "step": 3, "first": [1], "then": [2]},
                "answer_key": SECRET,
                "deep": [{"answer_key": SECRET, "kept": "yes"}],
            },
            location="scorer.py:12",
        ),
        finding("SIG001", None, kind="lead", severity="info"),
    ],
    "tasks": [
        {
            "id": f"t{index}",
            "digest": f"qh1:{index}",
            "layers": {},
            "verdict": "quarantined" if index < 8 else "admitted",
        }
        for index in range(1, 9)
    ],
    "not_measured": [
        {"code": "DET003", "tasks": 8, "reason": "rows have no seed", "would_need": "a seed"}
    ],
    "rules": [
        {"code": "VER001", "status": "fail", "reason": "", "trials": 8, "seconds": 1.0},
        {"code": "VER003", "status": "fail", "reason": "", "trials": 8, "seconds": 1.0},
        {"code": "SIG001", "status": "pass", "reason": "", "trials": 0, "seconds": 0.0},
        {
            "code": "DET001",
            "status": "pass",
            "reason": "0 of 300 runs per task differed",
            "trials": 2400,
            "seconds": 9.0,
        },
        {
            "code": "DET003",
            "status": "skip",
            "reason": "rows have no seed",
            "trials": 0,
            "seconds": 0,
        },
    ],
    "trials": {"run": 1000, "cached": 416, "seconds": 20.0},
    "host": {"provider": "bwrap", "python": "3.11.7", "arch": "x86_64"},
}


@pytest.fixture
def document() -> dict[str, Any]:
    return copy.deepcopy(DOCUMENT)


@pytest.fixture
def make_finding() -> Any:
    return finding


@pytest.fixture
def hostile() -> str:
    return HOSTILE


@pytest.fixture
def secret() -> str:
    return SECRET


@pytest.fixture
def hostile_document(document: dict[str, Any], hostile: str) -> dict[str, Any]:
    """Every foreign string of the report tries to break out."""
    document["environment"]["name"] = hostile
    document["environment"]["adapter"] = hostile
    document["environment"]["provisional"] = True
    document["environment"]["provisional_reason"] = hostile
    for item in document["findings"]:
        item["message"] = hostile
        item["location"] = "../../" + hostile
        item["evidence"] = {"expected": hostile, "seen": {"outcome": hostile}, "detail": hostile}
        item["task"] = hostile if item["task"] == "t1" else item["task"]
    document["tasks"][0]["id"] = hostile
    document["not_measured"][0]["reason"] = hostile
    return document
