from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from qualityhub.cli.main import run
from qualityhub.engine.report import Finding, InspectionReport, RuleReport, TaskReport


class Result(SimpleNamespace):
    """What one call of the command line did: ``code``, ``out``, ``err``."""

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def call(capsys, monkeypatch, tmp_path):
    """Run the command line in this process, as a program without a terminal would."""
    for name in ("QH_URL", "QH_TOKEN", "QH_TRACEBACK", "FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("QH_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    def invoke(*args: object) -> Result:
        code = run([str(arg) for arg in args])
        captured = capsys.readouterr()
        return Result(code=code, out=captured.out, err=captured.err)

    return invoke


def finding(code: str = "VER001", task: str | None = "t1", **changes: Any) -> Finding:
    made = Finding(
        id=f"f-{code}-{task}",
        code=code,
        rule_version=1,
        kind="finding",
        severity="error",
        waived=False,
        task=task,
        message="The reference earned 0.",
        evidence={"expected": 1.0, "seen": {"outcome": "reward", "reward": 0.0}},
        location="",
        reproduce=f"qualityhub reproduce f-{code}-{task}",
        fingerprint=f"fp-{code}-{task}",
        title="Reference solution is not accepted",
        fix="Fix the tests.",
    )
    return replace(made, **changes)


def report(*findings: Finding, verdict: str = "admitted", **environment: Any) -> InspectionReport:
    tasks = () if environment.get("tasks") == 0 else (TaskReport("t1", "qh1:1", {}, "admitted"),)
    return InspectionReport(
        environment={
            "name": "demo",
            "adapter": "humaneval",
            "digest": "qh1:d",
            "tasks": len(tasks),
            "provisional": False,
            "source": "demo",
            **environment,
        },
        verdict=verdict,  # type: ignore[arg-type]
        policy={"name": "default", "effort": "standard", "version": "qh1:p"},
        findings=tuple(findings),
        tasks=tasks,
        not_measured=(),
        rules=(RuleReport("VER001", "fail" if findings else "pass"),),
        trials={"run": 1, "cached": 0, "seconds": 0.1},
    )


@pytest.fixture
def make_finding():
    return finding


@pytest.fixture
def make_report():
    return report


@pytest.fixture
def engine(monkeypatch):
    """Answers sources with prepared reports instead of running sandboxes; records the options."""
    import qualityhub.engine.inspect as module

    answers: dict[str, Any] = {}
    seen = SimpleNamespace(answers=answers, options=[], sources=[])

    def inspect_source(source, options, progress=None):
        seen.options.append(options)
        seen.sources.append(source)
        answer = answers[source]
        if isinstance(answer, BaseException):
            raise answer
        return answer

    monkeypatch.setattr(module, "inspect_source", inspect_source)
    return seen
