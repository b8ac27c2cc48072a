"""An inspection report as its page shows it. The wording is that of every other renderer."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from qualityhub.engine.reports.reading import (
    claims,
    evidence_lines,
    grouped,
    outputs,
    shown,
    task_counts,
    trials_of,
)
from qualityhub.engine.reports.safe import ANSWER_KEY
from qualityhub.engine.trials.codec import ask_from_evidence
from qualityhub.engine.trials.variations import names_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from qualityhub.engine.reports.reading import Document

SHOWN_PER_RULE = 10
SHOWN_TRIALS = 6
SPOKEN = ("expected", "seen", "difference", "asks", ANSWER_KEY, "diff", "detail", "log")
NAMES = {
    "changed": "Changed",
    "differs": "Differs",
    "expected": "Expected",
    "seen": "Seen",
    "declared": "Declared",
    "declared_in": "Declared in",
    "hash_seed": "Hash seed",
    "not_shifted": "Not shifted",
    "probe": "Submission",
    "runs": "Runs",
}
BEHAVIOUR = "its behaviour could not be judged"


@dataclass(frozen=True, slots=True)
class FindingView:
    """One finding, all of it foreign text.

    Attributes:
        raw: The finding of the report.
        facts: Name and text: expected, seen, what differs, and what else the rule noted.
        tried: What was run, in words.
        outputs: Outputs of many lines.
        answer_key: The reference, which never leaves the hub; empty where there is none.
        trials: Keys of the trials that showed it.
    """

    raw: Mapping[str, Any]
    facts: tuple[tuple[str, str], ...]
    tried: str
    outputs: tuple[str, ...]
    answer_key: str
    trials: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GroupView:
    """Findings of one rule.

    Attributes:
        code: Rule code.
        title: Its title.
        level: ``error``, ``warning``, ``info`` or ``lead``, for the tag.
        count: How many there are.
        waived: How many of them are waived.
        findings: The first few.
    """

    code: str
    title: str
    level: str
    count: int
    waived: int
    findings: tuple[FindingView, ...]

    @property
    def hidden(self) -> int:
        """Findings beyond those shown."""
        return self.count - len(self.findings)


@dataclass(frozen=True, slots=True)
class ReportView:
    """A whole report.

    Attributes:
        document: The report's public JSON.
        why: The verdict in a sentence or two.
        groups: Findings by rule.
        tasks: Tasks by verdict.
        rules: How every rule ended, failures first.
        claims: Code and bound of determinism claims.
        counts: Findings by level.
    """

    document: Document
    why: str
    groups: tuple[GroupView, ...]
    tasks: Mapping[str, int]
    rules: tuple[Mapping[str, Any], ...]
    claims: tuple[tuple[str, str], ...]
    counts: Mapping[str, int]


RULE_ORDER = ("fail", "error", "skip", "pass")
NOT_FOR_IT = "does not apply"


def report_view(document: Document) -> ReportView:
    """Return what the page shows of a report."""
    groups = tuple(
        GroupView(
            code=group.code,
            title=group.title,
            level="lead" if group.kind == "lead" else group.severity,
            count=len(group.findings),
            waived=sum(bool(finding["waived"]) for finding in group.findings),
            findings=finding_views(group.findings[:SHOWN_PER_RULE]),
        )
        for group in grouped(document)
    )
    counts: Counter[str] = Counter()
    for group in groups:
        counts[group.level] += group.count
    return ReportView(
        document=document,
        why=why(document),
        groups=groups,
        tasks=task_counts(document),
        rules=tuple(
            sorted(
                document["rules"],
                key=lambda rule: (
                    str(rule["reason"]).startswith(NOT_FOR_IT),
                    RULE_ORDER.index(rule["status"]),
                    rule["code"],
                ),
            )
        ),
        claims=tuple(claims(document)),
        counts=counts,
    )


def finding_views(findings: Iterable[Mapping[str, Any]]) -> tuple[FindingView, ...]:
    """Return findings of a report as the page shows them."""
    return tuple(_finding(finding) for finding in findings)


def _finding(finding: Mapping[str, Any]) -> FindingView:
    evidence = finding["evidence"]
    rest = [(name, _text(value)) for name, value in evidence.items() if name not in SPOKEN]
    facts = [(NAMES.get(name, name), text) for name, text in [*evidence_lines(evidence), *rest]]
    key = evidence.get(ANSWER_KEY)
    return FindingView(
        raw=finding,
        facts=tuple((name, text) for name, text in facts if text),
        tried=_tried(evidence.get("asks")),
        outputs=tuple(outputs(evidence)),
        answer_key="" if key is None else _text(key),
        trials=tuple(trials_of(evidence)[:SHOWN_TRIALS]),
    )


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value):
        return ", ".join(value) or "nothing"
    if isinstance(value, (dict, list)):
        return json.dumps(value, ensure_ascii=False, default=str)
    return shown(value)


def _tried(asks: Any) -> str:
    """Return the runs behind a finding: the submission, and what was changed around it."""
    if not isinstance(asks, (list, tuple)):
        return ""
    words = []
    for ask in asks:
        try:
            variation = ask_from_evidence({"repeat": 0, **ask}).variation
        except (KeyError, TypeError, ValueError):
            continue
        changes = [names_of(variation)] if variation.changes() else []
        changes += [f"repeat {ask['repeat']}"] if ask.get("repeat") else []
        words.append(f"{ask.get('probe', '')}" + (f" ({', '.join(changes)})" if changes else ""))
    return "; ".join(dict.fromkeys(words))


def why(document: Document) -> str:
    """Return in a sentence or two why the verdict is what it is."""
    verdict = document["verdict"]
    counts = task_counts(document)
    total = int(document["environment"].get("tasks") or 0)
    said = {
        "admitted": f"{_all(total)} passed every rule that was measured",
        "partial": f"{counts.get('admitted', 0):,} of {_tasks(total)} may be used for training",
        "rejected": "Nothing of it may be used for training",
        "pending": "It may not be used for training yet",
        "error": "The hub's own machinery failed; this says nothing about the environment",
    }.get(verdict, str(verdict))
    return ". ".join(part for part in (said, _reasons(document)) if part) + "."


def _reasons(document: Document) -> str:
    blocking = Counter(
        (finding["code"], finding.get("title") or "")
        for finding in document["findings"]
        if finding["severity"] == "error" and finding["kind"] == "finding" and not finding["waived"]
    )
    verdict = document["verdict"]
    if verdict in {"partial", "rejected"} and blocking:
        words = [
            f"{title.lower() or 'a finding'} ({code}{f', {count:,} times' if count > 1 else ''})"
            for (code, title), count in blocking.most_common(3)
        ]
        rest = len(blocking) - len(words)
        return f"Because: {'; '.join(words)}" + (f"; and {rest} more rules" if rest else "")
    missing = document["not_measured"]
    if verdict in {"pending", "partial", "error"} and missing:
        first = max(missing, key=lambda item: item["tasks"])
        return f"{_tasks(first['tasks'])} not measured: {str(first['reason']) or BEHAVIOUR}"
    if verdict == "pending" and document["environment"].get("provisional"):
        return "The results are provisional, and the policy does not admit on those"
    if verdict == "admitted":
        notes = sum(
            finding["severity"] == "warning" and not finding["waived"]
            for finding in document["findings"]
        )
        return f"{notes:,} warning{'' if notes == 1 else 's'} for the owner" if notes else ""
    return ""


def _tasks(count: int) -> str:
    return f"{count:,} task{'' if count == 1 else 's'}"


def _all(count: int) -> str:
    return "The one task" if count == 1 else f"All {count:,} tasks"
