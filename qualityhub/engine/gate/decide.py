"""The gate as a pure function: rollups of two checkpoints in, one decision out."""

from __future__ import annotations

import hashlib
import platform
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy

from qualityhub import __version__
from qualityhub.engine.digest import PREFIX
from qualityhub.engine.gate.decision import Decision, DomainReport
from qualityhub.engine.gate.domains import Measured, measure
from qualityhub.engine.gate.levels import judge_levels
from qualityhub.engine.gate.needed import needed_to_decide
from qualityhub.engine.gate.rollups import merged
from qualityhub.engine.gate.verdicts import Evidence, Judgement, judge_domains, pt, split_budget

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from qualityhub.engine.gate.decision import LevelReport, Verdict
    from qualityhub.engine.gate.policy import GatePolicy
    from qualityhub.engine.gate.rollups import Rollups

_WORST_FIRST = {"block": 0, "incomparable": 1, "inconclusive": 2, "promote": 3}


def decide(
    policy: GatePolicy,
    baseline: Rollups,
    candidate: Rollups,
    *,
    fresh: tuple[Rollups, Rollups] | None = None,
    notes: Sequence[str] = (),
) -> Decision:
    """Return the decision on a candidate; the same inputs always give the same.

    Args:
        policy: What counts as a regression.
        baseline: Rollups of the baseline by domain.
        candidate: Rollups of the candidate by domain.
        fresh: Second measurement (baseline, candidate) of the domains that the first one flagged;
            with it, a block is confirmed on the fresh rollouts alone.
        notes: What the caller wants said beside the verdict.
    """
    evidence = [
        _evidence(name, policy, baseline, candidate, fresh)
        for name in sorted(set(baseline) | set(candidate))
    ]
    shares = split_budget(policy, evidence)
    judged = judge_domains(policy, evidence, shares.domains)
    domains = tuple(
        sorted(
            (_report(policy, item, judged[item.name]) for item in evidence),
            key=lambda report: (
                _WORST_FIRST[report.verdict],
                0.0 if report.numbers.delta is None else report.numbers.delta,
                report.domain,
            ),
        )
    )
    overall, groups = judge_levels(policy, evidence, domains, shares)
    verdict, reasons = _roll_up(policy, domains, overall, groups)
    return Decision(
        verdict=verdict,
        policy=policy.as_json(),
        overall=overall,
        groups=groups,
        domains=domains,
        reasons=tuple(reasons),
        notes=(*notes, *_notes(policy, evidence, domains, verdict)),
        inputs=_inputs(evidence, fresh is not None),
        software={
            "qualityhub": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "scipy": scipy.__version__,
        },
    )


def _evidence(
    name: str,
    policy: GatePolicy,
    baseline: Rollups,
    candidate: Rollups,
    fresh: tuple[Rollups, Rollups] | None,
) -> Evidence:
    before, after = baseline.get(name, ()), candidate.get(name, ())
    first = measure(name, policy, before, after)
    if fresh is None or not fresh[0].get(name) or not fresh[1].get(name):
        return Evidence(first=first, fresh=None, shown=first)
    again = measure(name, policy, fresh[0][name], fresh[1][name])
    both = [
        merged({name: part}, {name: more[name]})[name]
        for part, more in ((before, fresh[0]), (after, fresh[1]))
    ]
    return Evidence(first=first, fresh=again, shown=measure(name, policy, *both))


def _report(policy: GatePolicy, item: Evidence, judgement: Judgement) -> DomainReport:
    shown = item.shown
    validity = dict(shown.validity)
    if judgement.if_invalid_failed is not None:
        validity["verdict_if_left_out"] = judgement.if_left_out
        validity["verdict_if_failed"] = judgement.if_invalid_failed
    return DomainReport(
        domain=item.name,
        verdict=judgement.verdict,
        cause=judgement.cause,
        reason=judgement.reason,
        tier=shown.policy.tier,
        group=shown.group,
        numbers=shown.numbers(policy.alpha),
        n_clusters=shown.estimate.units if shown.estimate else 0,
        n_rollouts=shown.rollouts,
        margin=shown.policy.margin,
        p_adjusted=judgement.p_adjusted,
        needed=_needed(policy, shown, judgement),
        coverage=shown.coverage,
        excluded=tuple({"task": task, "reason": why} for task, why in shown.excluded),
        flips=shown.flips,
        metrics=shown.metrics,
        validity=validity,
    )


def _needed(policy: GatePolicy, shown: Measured, judgement: Judgement) -> dict[str, Any]:
    settled = {"rollouts_per_task": None, "tasks": None, "reason": ""}
    estimate = shown.estimate
    if judgement.verdict != "inconclusive" or estimate is None:
        return settled
    if judgement.cause == "validity":
        return {**settled, "reason": "valid rollouts in place of the invalid ones"}
    now = shown.k * 2 * estimate.n
    if judgement.cause == "screened":
        k = policy.confirm_rollouts
        extra = 2 * k * estimate.n
        result: dict[str, Any] = {
            "rollouts_per_task": k,
            "tasks": estimate.n,
            "reason": f"{k} fresh rollouts per task on both sides to confirm",
        }
    else:
        plan = needed_to_decide(
            estimate,
            margin=shown.policy.margin,
            rollouts=shown.k,
            alpha=policy.alpha,
            power=policy.power,
            min_tasks=shown.policy.min_tasks,
        )
        result = {
            "rollouts_per_task": plan.rollouts_per_task,
            "tasks": plan.tasks,
            "reason": plan.reason,
            "promote_at_no_change": plan.promote_at_no_change,
            "promote_at_estimate": plan.promote_at_estimate,
            "block_at_estimate": plan.block_at_estimate,
        }
        extra = max(0, round(2 * plan.tasks * (plan.rollouts_per_task or shown.k) - now))
    result["extra_rollouts"] = extra
    price = shown.cost_per_rollout
    result["extra_cost"] = None if price is None else price * extra
    return result


def _roll_up(
    policy: GatePolicy,
    domains: Sequence[DomainReport],
    overall: LevelReport | None,
    groups: Sequence[LevelReport],
) -> tuple[Verdict, list[str]]:
    gating = [report for report in domains if report.tier != "advisory"]
    if lost := [r for r in gating if r.verdict == "incomparable"]:
        return "incomparable", [f"{r.domain}: {r.reason}" for r in lost]
    if overall is None:
        return "incomparable", ["no domain could be compared"]
    levels = [*groups, overall]
    blocked = [f"{r.domain}: {r.reason}" for r in gating if r.verdict == "block"]
    blocked += [
        f"{level.name}: {level.reason}"
        for level in levels
        if level.verdict == "block" and not _mirrors(level)
    ]
    if blocked:
        return "block", blocked
    held = [f"{r.domain}: {why}" for r in gating if (why := _holds(policy, r))]
    held += [
        f"{level.name}: {_with_needed(level)}"
        for level in levels
        if level.verdict != "promote" and not (_mirrors(level) and held)
    ]
    if held:
        return "inconclusive", held
    return "promote", [f"{level.name}: {level.reason}" for level in levels]


def _with_needed(report: DomainReport | LevelReport) -> str:
    # Where something was merely screened, its sentence already says what to measure.
    if report.cause == "imprecise" and report.needed and report.needed["reason"]:
        return f"{report.reason}; {report.needed['reason']}"
    return report.reason


def _mirrors(level: LevelReport) -> bool:
    """Whether the level only repeats its single domain."""
    return len(level.domains) == 1


def _holds(policy: GatePolicy, report: DomainReport) -> str:
    """Return why a domain that is not settled keeps the checkpoint from promotion, or nothing."""
    if report.verdict == "promote":
        return ""
    if report.tier == "critical" or report.cause in {"screened", "validity"}:
        return _with_needed(report)
    floor = policy.for_domain(report.domain).floor
    lower = report.numbers.lower
    if report.cause == "imprecise" and lower is not None and lower <= -floor:
        return f"a drop beyond the floor of {pt(floor)} is still plausible; {_with_needed(report)}"
    return ""


def _notes(
    policy: GatePolicy,
    evidence: Sequence[Evidence],
    domains: Sequence[DomainReport],
    verdict: Verdict,
) -> list[str]:
    notes: list[str] = []
    small = [r.domain for r in domains if r.cause == "few-tasks"]
    if small:
        notes.append(f"Too few tasks to promote or block by themselves: {_some(small)}.")
    open_ones = [r.domain for r in domains if r.cause == "imprecise" and r.tier == "supporting"]
    if verdict == "promote" and open_ones:
        notes.append(
            f"Not settled on their own, but above the floor of {pt(policy.margins.floor)} and part "
            f"of a mean that is inside its margin: {_some(open_ones)}."
        )
    unnamed = sum(item.shown.unnamed for item in evidence)
    if unnamed:
        notes.append(
            f"{unnamed} tasks were paired by name alone: at least one side has no task_digest, so "
            "a changed task would go unnoticed."
        )
    excluded = sum(len(item.shown.excluded) for item in evidence)
    if excluded:
        notes.append(f"{excluded} tasks were left out; the domains list them with the reason.")
    negative = [item.name for item in evidence if item.shown.negative]
    if negative:
        notes.append(
            "Model failures count as reward 0 although rewards go below it; set model_failure = "
            f'"scored" for {_some(negative)}.'
        )
    if all(item.first.policy.run_noise == 0 for item in evidence):
        notes.append(
            "Run-to-run noise was taken as 0: repeat one checkpoint twice and set run_noise to "
            "what that shows."
        )
    return notes


def _some(names: Sequence[str], most: int = 8) -> str:
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def _inputs(evidence: Iterable[Evidence], has_fresh: bool) -> dict[str, Any]:
    items = list(evidence)
    inputs: dict[str, Any] = {
        side: _input_of([item.first for item in items], side) for side in ("baseline", "candidate")
    }
    if has_fresh:
        again = [item.fresh for item in items if item.fresh is not None]
        inputs |= {f"fresh_{side}": _input_of(again, side) for side in ("baseline", "candidate")}
    return inputs


def _input_of(measured: Sequence[Measured], side: str) -> Mapping[str, Any]:
    text = hashlib.sha256(b"gate-input\0")
    rollouts = 0
    for item in measured:
        text.update(f"{item.name}\0{item.digests[side]}\n".encode())
        rollouts += sum(item.validity[f"{side}_rollouts"].values())
    return {"digest": PREFIX + text.hexdigest(), "domains": len(measured), "rollouts": rollouts}
