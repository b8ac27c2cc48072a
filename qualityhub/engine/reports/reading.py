"""What every renderer reads out of inspection documents, so that all of them say the same."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Document = Mapping[str, Any]
"""An inspection report as its public JSON (``qualityhub.inspection/1``)."""

LEVELS = ("error", "warning", "info")
SHOWN_VALUES = 8
TRIAL_KEY = re.compile(r"qh1:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Group:
    """Findings of one rule and severity.

    Attributes:
        code: Rule code.
        title: The rule's title, or an empty string in reports that carry none.
        severity: Shared by all findings of the group.
        kind: ``finding`` or ``lead``.
        findings: In the report's order.
    """

    code: str
    title: str
    severity: str
    kind: str
    findings: tuple[Mapping[str, Any], ...]


def open_findings(document: Document, known: frozenset[str]) -> list[Mapping[str, Any]]:
    """Return what can fail an inspection: unwaived findings of severity error not yet known."""
    return [
        finding
        for finding in document["findings"]
        if finding["severity"] == "error"
        and finding["kind"] == "finding"
        and not finding["waived"]
        and finding["fingerprint"] not in known
    ]


def grouped(document: Document) -> list[Group]:
    """Return the findings by severity and rule: errors first, leads last."""
    buckets: dict[tuple[bool, int, str], list[Mapping[str, Any]]] = {}
    for finding in document["findings"]:
        level = LEVELS.index(finding["severity"]) if finding["severity"] in LEVELS else len(LEVELS)
        key = (finding["kind"] == "lead", level, finding["code"])
        buckets.setdefault(key, []).append(finding)
    titles = {rule["code"]: rule.get("title", "") for rule in document["rules"]}
    return [
        Group(
            code=code,
            title=rows[0].get("title") or titles.get(code, ""),
            severity=rows[0]["severity"],
            kind="lead" if lead else "finding",
            findings=tuple(rows),
        )
        for (lead, _, code), rows in sorted(buckets.items())
    ]


def task_counts(document: Document) -> dict[str, int]:
    """Return how many tasks ended with which verdict, most welcome first."""
    counts = dict.fromkeys(("admitted", "quarantined", "pending", "error"), 0)
    for task in document["tasks"]:
        counts[task["verdict"]] = counts.get(task["verdict"], 0) + 1
    return {verdict: count for verdict, count in counts.items() if count}


def finding_counts(document: Document, known: frozenset[str]) -> dict[str, int]:
    """Return counts of errors, warnings, notes and leads, and of what was waived or known."""
    counts = dict.fromkeys(("errors", "warnings", "notes", "leads", "waived", "known"), 0)
    names = {"error": "errors", "warning": "warnings", "info": "notes"}
    for finding in document["findings"]:
        if finding["waived"]:
            counts["waived"] += 1
        elif finding["fingerprint"] in known:
            counts["known"] += 1
        elif finding["kind"] == "lead":
            counts["leads"] += 1
        else:
            counts[names.get(finding["severity"], "notes")] += 1
    return counts


def claims(document: Document) -> list[tuple[str, str]]:
    """Return code and claim, with its bound, of every determinism rule that passed."""
    return [
        (rule["code"], rule["reason"])
        for rule in document["rules"]
        if rule["code"].startswith("DET") and rule["status"] == "pass" and rule["reason"]
    ]


def evidence_lines(evidence: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what was expected, seen and different as name and text; the text is foreign.

    Observations become words (``reward 0.5``, ``crashed``); their outputs are :func:`outputs`.
    """
    lines = [(name, shown(evidence[name])) for name in ("expected", "seen") if name in evidence]
    difference = evidence.get("difference")
    if isinstance(difference, Mapping):
        step = f" at step {difference['step']}" if "step" in difference else ""
        what = f"{difference.get('what', 'result')}{step}"
        first, then = shown(difference.get("first")), shown(difference.get("then"))
        lines.append(("differs", f"{what}: first {first}, then {then}"))
    return lines


def outputs(evidence: Mapping[str, Any]) -> list[str]:
    """Return the outputs that explain what was seen, each once, as foreign text of many lines."""
    seen = evidence.get("seen")
    holders = [evidence, *(seen if isinstance(seen, (list, tuple)) else [seen])]
    texts = [
        str(holder[name])
        for holder in holders
        if isinstance(holder, Mapping)
        for name in ("diff", "detail", "log")
        if holder.get(name)
    ]
    return list(dict.fromkeys(texts))


def trials_of(evidence: Any) -> list[str]:
    """Return the keys of the trials that evidence names, at any depth, each once."""
    found: dict[str, None] = {}
    waiting = [evidence]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping):
            key = value.get("trial")
            if isinstance(key, str) and TRIAL_KEY.fullmatch(key):
                found[key] = None
            waiting.extend(reversed(list(value.values())))
        elif isinstance(value, (list, tuple)):
            waiting.extend(reversed(value))
    return list(found)


def shown(value: Any) -> str:
    """Return a piece of evidence in a few words."""
    if isinstance(value, Mapping):
        if "outcome" in value:
            if value["outcome"] != "reward":
                return str(value["outcome"])
            if "reward_type" in value:
                return f"reward of type {value['reward_type']}"
            return f"reward {value.get('reward')}"
        return ", ".join(f"{key} {shown(item)}" for key, item in value.items())
    if isinstance(value, (list, tuple)):
        rest = len(value) - SHOWN_VALUES
        more = f" and {rest} more" if rest > 0 else ""
        return ", ".join(shown(item) for item in value[:SHOWN_VALUES]) + more
    return str(value)


def summary(document: Document) -> str:
    """Return the environment's size and format in a few words."""
    environment = document["environment"]
    tasks = environment.get("tasks", 0)
    words = [str(environment.get("adapter") or "unknown format")]
    words.append(f"{tasks:,} task" + ("" if tasks == 1 else "s"))
    if environment.get("domain"):
        words.append(f"domain {environment['domain']}")
    return ", ".join(words)


def rate(document: Document) -> float:
    """Return trials per second of those that ran, 0 where none did."""
    trials = document["trials"]
    seconds = float(trials.get("seconds") or 0)
    return int(trials.get("run") or 0) / seconds if seconds > 0 else 0.0
