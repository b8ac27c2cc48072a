"""Facts, then policy: findings get their severity, tasks and environment their verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from qualityhub.engine.digest import digest_json
from qualityhub.engine.policy import SEVERITIES, Severity
from qualityhub.engine.report import (
    Finding,
    InspectionReport,
    NotMeasured,
    RuleReport,
    RuleStatus,
    TaskReport,
    TaskVerdict,
    Verdict,
)
from qualityhub.engine.rules.model import Found, Rule, Unmeasured
from qualityhub.engine.trials.codec import ask_to_evidence
from qualityhub.engine.trials.model import Ask, Observation

if TYPE_CHECKING:
    from qualityhub.engine.rules.advance import Inspection, Tally


@dataclass(frozen=True, slots=True)
class Waiver:
    """A granted exception. It expires, and a waived finding never reads as a pass.

    Attributes:
        code: Rule code.
        task: Task id, or None for every task.
        reason: Why it was granted.
        until: Last ISO date on which it holds.
    """

    code: str
    task: str | None
    reason: str
    until: str


@dataclass(slots=True)
class Judged:
    """One rule's facts.

    Attributes:
        rule: The rule.
        skipped: Why it did not run at all; empty when it ran.
        found: What it found.
        unmeasured: By task id, what it could not judge.
        errors: By task id, how our machinery failed.
        asks: What it looked at.
    """

    rule: Rule
    skipped: str = ""
    found: list[Found] = field(default_factory=list)
    unmeasured: dict[str, Unmeasured] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    asks: list[Ask] = field(default_factory=list)


def fingerprint(code: str, task: str | None, ground: str) -> str:
    """Return what identifies a finding across versions: rule, task id, normalised ground."""
    return digest_json("finding", [code, task or "", ground])


def build_report(
    inspection: Inspection,
    judged: Sequence[Judged],
    seen: Mapping[Ask, Observation],
    tally: Tally,
) -> InspectionReport:
    """Derive the report from facts and policy."""
    findings = _findings(inspection, judged)
    task_reports = _tasks(inspection, judged, findings)
    environment = inspection.environment
    provisional = [world for world in inspection.worlds.values() if world.provisional]
    first = next(iter(inspection.worlds.values()))
    return InspectionReport(
        environment={
            "name": environment.name,
            "adapter": environment.adapter,
            "digest": environment.digest,
            "tasks": len(environment.tasks),
            "provisional": bool(provisional),
            "provisional_reason": provisional[0].provisional_reason if provisional else "",
            "family": environment.family,
            "domain": environment.domain,
            "source": inspection.source,
            "lock": list(first.lock),
        },
        verdict=_verdict(inspection, judged, findings, task_reports),
        policy=inspection.policy.as_json(),
        findings=tuple(findings),
        tasks=task_reports,
        not_measured=_not_measured(inspection, judged),
        rules=tuple(_rule_report(item, findings, seen, tally) for item in judged),
        trials={"run": tally.run, "cached": tally.cached, "seconds": round(tally.seconds, 3)},
        host={
            **inspection.host,
            "provider": first.provider,
            "python": first.python,
            "layer": first.layer,
        },
    )


def _findings(inspection: Inspection, judged: Sequence[Judged]) -> list[Finding]:
    findings: dict[str, Finding] = {}
    for item in judged:
        rule = item.rule
        for found in item.found:
            mark = fingerprint(rule.code, found.task, found.ground)
            evidence: dict[str, Any] = dict(found.evidence)
            if found.asks:
                evidence["asks"] = [ask_to_evidence(ask) for ask in found.asks]
            identity = "f-" + mark.rpartition(":")[2][:12]
            findings.setdefault(
                mark,
                Finding(
                    id=identity,
                    code=rule.code,
                    rule_version=rule.version,
                    kind=found.kind,
                    severity=_severity(inspection, rule, found),
                    waived=_waived(inspection, rule.code, found.task),
                    task=found.task,
                    message=found.message,
                    evidence=evidence,
                    location=found.location,
                    reproduce=f"qualityhub reproduce {identity}",
                    fingerprint=mark,
                    title=rule.title,
                    fix=rule.page.fix,
                ),
            )
    place = {task.id: index for index, task in enumerate(inspection.environment.tasks)}
    return sorted(
        findings.values(),
        key=lambda finding: (
            SEVERITIES.index(finding.severity),
            place.get(finding.task or "", -1),
            finding.code,
            finding.fingerprint,
        ),
    )


def _severity(inspection: Inspection, rule: Rule, found: Found) -> Severity:
    if found.kind == "lead":
        return "info"
    return inspection.policy.severity.get(rule.code) or found.severity or rule.severity


def _waived(inspection: Inspection, code: str, task: str | None) -> bool:
    requested = [
        Waiver(
            code=str(item.get("code", "")),
            task=item.get("task"),
            reason=str(item.get("reason", "")),
            until=str(item.get("until", "")),
        )
        for item in inspection.environment.requests.get("waivers", ())
        if item.get("code") in inspection.policy.relax
    ]
    return any(
        waiver.code == code and waiver.task in {None, task} and waiver.until >= inspection.today
        for waiver in (*inspection.waivers, *requested)
    )


def _tasks(
    inspection: Inspection, judged: Sequence[Judged], findings: Sequence[Finding]
) -> tuple[TaskReport, ...]:
    bad = {
        finding.task for finding in findings if finding.severity == "error" and not finding.waived
    }
    failed = {task for item in judged for task in item.errors}
    pending = {
        task for item in judged for task, unmeasured in item.unmeasured.items() if unmeasured.blocks
    }
    reports = []
    for task in inspection.environment.tasks:
        world = inspection.worlds.get(task.id) or inspection.worlds.get("")
        held = world is not None and world.provisional and not inspection.policy.allow_provisional
        verdict: TaskVerdict
        if task.id in failed:
            verdict = "error"
        elif None in bad or task.id in bad:
            verdict = "quarantined"
        elif task.id in pending or held:
            verdict = "pending"
        else:
            verdict = "admitted"
        reports.append(TaskReport(task.id, task.digest, dict(task.layers), verdict))
    return tuple(reports)


def _verdict(
    inspection: Inspection,
    judged: Sequence[Judged],
    findings: Sequence[Finding],
    tasks: Sequence[TaskReport],
) -> Verdict:
    del inspection
    if any(item.errors for item in judged):
        return "error"
    whole = any(
        finding.task is None and finding.severity == "error" and not finding.waived
        for finding in findings
    )
    verdicts = [task.verdict for task in tasks]
    quarantined = verdicts.count("quarantined")
    if whole or quarantined == len(verdicts):
        return "rejected"
    if quarantined:
        return "partial"
    return "pending" if "pending" in verdicts else "admitted"


def _not_measured(inspection: Inspection, judged: Sequence[Judged]) -> tuple[NotMeasured, ...]:
    rows: dict[tuple[str, str, str], int] = {}
    for item in judged:
        for unmeasured in item.unmeasured.values():
            key = (item.rule.code, unmeasured.reason, unmeasured.would_need)
            rows[key] = rows.get(key, 0) + 1
        if item.skipped and item.skipped.startswith("not part of"):
            rows[item.rule.code, item.skipped, "a higher --effort"] = len(
                inspection.environment.tasks
            )
    return tuple(
        NotMeasured(code, count, reason, need) for (code, reason, need), count in rows.items()
    )


def _rule_report(
    item: Judged,
    findings: Sequence[Finding],
    seen: Mapping[Ask, Observation],
    tally: Tally,
) -> RuleReport:
    trials = {seen[ask].trial for ask in item.asks if ask in seen}
    status: RuleStatus
    mine = [finding for finding in findings if finding.code == item.rule.code]
    if item.skipped:
        status, reason = "skip", item.skipped
    elif item.errors:
        status, reason = "error", next(iter(item.errors.values()))
    elif any(finding.kind == "finding" for finding in mine):
        status, reason = "fail", f"{len(mine)} findings" if len(mine) > 1 else "1 finding"
    elif item.unmeasured and len(item.unmeasured) >= _tasks_judged(item):
        status, reason = "skip", next(iter(item.unmeasured.values())).reason
    else:
        status, reason = "pass", item.rule.measures() + _bound(item)
    return RuleReport(
        code=item.rule.code,
        status=status,
        reason=reason,
        trials=len(trials - {""}),
        seconds=round(sum(tally.by_trial.get(trial, 0.0) for trial in trials), 3),
        title=item.rule.title,
    )


def _tasks_judged(item: Judged) -> int:
    return len({ask.task for ask in item.asks} | set(item.unmeasured))


def _bound(item: Judged) -> str:
    """Say how much a determinism pass proves: zero differences in n runs bound the flake rate."""
    if not item.rule.code.startswith("DET"):
        return ""
    runs: dict[tuple[str, str], int] = {}
    if item.rule.fields:
        # A change that matters shows in every run: what counts is that it was there.
        for ask in set(item.asks):
            if item.rule.fields.intersection(ask.variation.changes()):
                runs[ask.task, ask.probe] = runs.get((ask.task, ask.probe), 0) + 1
        fewest = min(runs.values(), default=0)
        text = "1 changed run" if fewest == 1 else f"{fewest} changed runs"
        return f"; {text} per task, beside runs without the change that agree" if fewest else ""
    for ask in set(item.asks):
        runs[ask.task, ask.probe] = runs.get((ask.task, ask.probe), 0) + 1
    fewest = min((count for count in runs.values() if count > 1), default=0)
    if not fewest:
        return ""
    # Rounded up, or it would be no bound.
    percent = math.ceil(1000 * (1 - 0.05 ** (1 / fewest))) / 10
    return (
        f"; 0 of {fewest} runs per task differed, which bounds the flake rate below "
        f"{percent:.1f} % at 95 %"
    )
