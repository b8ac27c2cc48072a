"""The inspection report: one document, the same from CLI, worker, REST and dashboard."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from qualityhub.engine.policy import Severity

SCHEMA = "qualityhub.inspection/1"
SCHEMA_MANY = "qualityhub.inspections/1"

Verdict = Literal["admitted", "partial", "rejected", "pending", "error"]
TaskVerdict = Literal["admitted", "quarantined", "pending", "error"]
RuleStatus = Literal["pass", "fail", "skip", "error"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding; field names are the public JSON's (DESIGN 4.1)."""

    id: str
    code: str
    rule_version: int
    kind: Literal["finding", "lead"]
    severity: Severity
    waived: bool
    task: str | None
    message: str
    evidence: Mapping[str, Any]
    location: str
    reproduce: str
    fingerprint: str
    title: str = ""
    fix: str = ""


@dataclass(frozen=True, slots=True)
class TaskReport:
    """The verdict on one task."""

    id: str
    digest: str
    layers: Mapping[str, str]
    verdict: TaskVerdict


@dataclass(frozen=True, slots=True)
class NotMeasured:
    """What was not looked at, said beside the verdict."""

    code: str
    tasks: int
    reason: str
    would_need: str = ""


@dataclass(frozen=True, slots=True)
class RuleReport:
    """How one rule ended. SKIP is never a pass; ERROR fails closed."""

    code: str
    status: RuleStatus
    reason: str = ""
    trials: int = 0
    seconds: float = 0.0
    title: str = ""


@dataclass(frozen=True, slots=True)
class InspectionReport:
    """The whole report.

    Attributes:
        environment: ``name, adapter, digest, tasks, provisional`` and, additive, ``family``,
            ``provisional_reason``, ``lock``, ``domain``.
        verdict: See :data:`Verdict`.
        policy: The policy in force with its version.
        findings: Most severe first, then by task and code.
        tasks: One per task.
        not_measured: What was not looked at.
        rules: One per rule of the catalogue that was selected.
        trials: ``run, cached, seconds``.
        host: Provenance: provider, python, arch; not part of any digest.
    """

    environment: Mapping[str, Any]
    verdict: Verdict
    policy: Mapping[str, Any]
    findings: tuple[Finding, ...]
    tasks: tuple[TaskReport, ...]
    not_measured: tuple[NotMeasured, ...]
    rules: tuple[RuleReport, ...]
    trials: Mapping[str, Any]
    host: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the public document, ``{"schema": "qualityhub.inspection/1", ...}``."""
        return {"schema": SCHEMA, **asdict(self)}


def report_from_json(document: Mapping[str, Any]) -> InspectionReport:
    """Rebuild a report from its own JSON document.

    Raises:
        KeyError: A field is missing; callers that read foreign files validate first.
        TypeError: A field has a name this version does not know.
    """
    return InspectionReport(
        environment=document["environment"],
        verdict=document["verdict"],
        policy=document["policy"],
        findings=tuple(Finding(**item) for item in document["findings"]),
        tasks=tuple(TaskReport(**item) for item in document["tasks"]),
        not_measured=tuple(NotMeasured(**item) for item in document["not_measured"]),
        rules=tuple(RuleReport(**item) for item in document["rules"]),
        trials=document["trials"],
        host=document["host"],
    )
