"""Groups of domains and all of them: small drops everywhere that no single domain shows."""

from __future__ import annotations

from math import fsum
from typing import TYPE_CHECKING, Any

from qualityhub.engine.gate.decision import LevelReport, Numbers
from qualityhub.engine.gate.exact import holm
from qualityhub.engine.gate.needed import needed_to_decide
from qualityhub.engine.gate.statistics import pooled_estimate
from qualityhub.engine.gate.verdicts import between, promoted, pt, read

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qualityhub.engine.gate.decision import Cause, DomainReport, Verdict
    from qualityhub.engine.gate.domains import Measured
    from qualityhub.engine.gate.policy import Budget, GatePolicy
    from qualityhub.engine.gate.statistics import Estimate
    from qualityhub.engine.gate.verdicts import Evidence, Reading


def judge_levels(
    policy: GatePolicy,
    evidence: Sequence[Evidence],
    domains: Sequence[DomainReport],
    shares: Budget,
) -> tuple[LevelReport | None, tuple[LevelReport, ...]]:
    """Return the overall level (None without any comparable domain) and the groups.

    Both rest on the first look: choosing which domains to measure again would bias a mean of them.
    """
    members = [
        item.first
        for item in evidence
        if item.first.problem is None
        and item.first.estimate is not None
        and item.first.policy.tier != "advisory"
    ]
    if not members:
        return None, ()
    by_group: dict[str, list[Measured]] = {}
    for item in members:
        if item.group is not None:
            by_group.setdefault(item.group, []).append(item)
    # A group of one says nothing that its domain does not.
    names = sorted(name for name, group in by_group.items() if len(group) > 1)
    adjusted = {
        reading: holm([_pooled(by_group[name], reading).p_worse for name in names])
        for reading in _READINGS
    }
    groups = [
        _level(
            policy,
            name,
            by_group[name],
            margin=policy.margins.group,
            share=shares.groups,
            p_adjusted={reading: adjusted[reading][index] for reading in _READINGS},
        )
        for index, name in enumerate(names)
    ]
    groups += [
        _mirror(policy, name, group[0], domains)
        for name, group in sorted(by_group.items())
        if len(group) == 1
    ]
    if len(members) == 1:
        return _mirror(policy, "overall", members[0], domains), tuple(groups)
    chances = {reading: _pooled(members, reading).p_worse for reading in _READINGS}
    overall = _level(
        policy,
        "overall",
        members,
        margin=policy.margins.overall,
        share=shares.overall,
        p_adjusted=chances,
    )
    return overall, tuple(groups)


_READINGS: tuple[Reading, ...] = ("left-out", "failed")


def _pooled(members: Sequence[Measured], reading: Reading) -> Estimate:
    return pooled_estimate([e for item in members if (e := read(item, reading)) is not None])


def _level(
    policy: GatePolicy,
    name: str,
    members: Sequence[Measured],
    *,
    margin: float,
    share: float,
    p_adjusted: dict[Reading, float],
) -> LevelReport:
    estimate = _pooled(members, "left-out")
    verdict, cause, reason = _judge(policy, estimate, margin, share, p_adjusted["left-out"])
    if any(item.pessimist for item in members):
        pessimist = _pooled(members, "failed")
        other, _, _ = _judge(policy, pessimist, margin, share, p_adjusted["failed"])
        if other != verdict:
            reason = (
                f"the verdict depends on invalid rollouts: {verdict} when they are left out, "
                f"{other} when they count as failed"
            )
            verdict, cause = "inconclusive", "validity"
    needed = None
    if cause in {"imprecise", "few-tasks", "screened"}:
        needed = _needed(policy, members, estimate, margin)
    return LevelReport(
        name=name,
        verdict=verdict,
        cause=cause,
        reason=reason,
        numbers=_numbers(policy, members, estimate),
        margin=margin,
        p_adjusted=p_adjusted["left-out"],
        domains=tuple(item.name for item in members),
        needed=needed,
    )


def _judge(
    policy: GatePolicy, estimate: Estimate, margin: float, share: float, p_adjusted: float
) -> tuple[Verdict, Cause, str]:
    alpha = policy.alpha
    if estimate.units < policy.min_tasks:
        reason = f"{estimate.units} independent tasks neither promote nor block"
        return "inconclusive", "few-tasks", reason
    if estimate.lower(alpha) > -margin:
        return "promote", "inside-margin", promoted(estimate, margin, alpha)
    if estimate.upper(alpha) < 0 and p_adjusted <= share:
        reason = f"the mean got worse: {between(estimate, alpha)}, p {p_adjusted:.2g}"
        return "block", "confirmed", reason
    if estimate.upper(alpha) < 0:
        reason = f"the mean looks worse, {between(estimate, alpha)}, but is not confirmed"
        return "inconclusive", "screened", reason
    reason = (
        f"the mean, {between(estimate, alpha)}, leaves open whether it dropped by {pt(margin)} "
        "or not"
    )
    return "inconclusive", "imprecise", reason


def _mirror(
    policy: GatePolicy, name: str, member: Measured, domains: Sequence[DomainReport]
) -> LevelReport:
    report = next(item for item in domains if item.domain == member.name)
    return LevelReport(
        name=name,
        verdict=report.verdict,
        cause=report.cause,
        reason=report.reason,
        numbers=member.numbers(policy.alpha),
        margin=report.margin,
        p_adjusted=report.p_adjusted,
        domains=(member.name,),
        needed=report.needed,
    )


def _numbers(policy: GatePolicy, members: Sequence[Measured], estimate: Estimate) -> Numbers:
    def mean(values: list[float | None]) -> float:
        weighted = [
            (item.estimate.n if item.estimate else 0) * (value or 0.0)
            for item, value in zip(members, values, strict=True)
        ]
        return fsum(weighted) / estimate.n

    return Numbers(
        n_tasks=estimate.n,
        baseline_mean=mean([item.baseline_mean for item in members]),
        candidate_mean=mean([item.candidate_mean for item in members]),
        delta=estimate.delta,
        lower=estimate.lower(policy.alpha),
        upper=estimate.upper(policy.alpha),
        p_worse=estimate.p_worse,
        se=estimate.se,
    )


def _needed(
    policy: GatePolicy, members: Sequence[Measured], estimate: Estimate, margin: float
) -> dict[str, Any]:
    tasks = [item.estimate.n if item.estimate else 0 for item in members]
    rollouts = estimate.n / fsum(n / item.k for n, item in zip(tasks, members, strict=True))
    plan = needed_to_decide(
        estimate,
        margin=margin,
        rollouts=rollouts,
        alpha=policy.alpha,
        power=policy.power,
        min_tasks=policy.min_tasks,
    )
    return {
        "rollouts_per_task": plan.rollouts_per_task,
        "tasks": plan.tasks,
        "reason": plan.reason,
    }
