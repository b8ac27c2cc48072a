"""From estimates to verdicts, domain by domain, with one error rate for all of them together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from qualityhub.engine.gate.exact import holm

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from qualityhub.engine.gate.decision import Cause, Verdict
    from qualityhub.engine.gate.domains import Measured
    from qualityhub.engine.gate.policy import Budget, GatePolicy
    from qualityhub.engine.gate.statistics import Estimate


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that was measured of one domain.

    Attributes:
        first: The first look.
        fresh: The second measurement, where there is one.
        shown: Both together: the estimate that is shown.
    """

    first: Measured
    fresh: Measured | None
    shown: Measured

    @property
    def name(self) -> str:
        """Domain name."""
        return self.first.name


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict on one domain.

    Attributes:
        verdict: One of the four.
        cause: Why, for programs.
        reason: Why, for people.
        p_adjusted: After Holm over the family, None where it was in none.
        if_left_out: Verdict with invalid rollouts left out, where there are any.
        if_invalid_failed: Verdict with invalid rollouts counted as failed, where there are any.
    """

    verdict: Verdict
    cause: Cause
    reason: str
    p_adjusted: float | None = None
    if_left_out: Verdict | None = None
    if_invalid_failed: Verdict | None = None


Reading = Literal["left-out", "failed"]
"""What an invalid rollout is taken for."""


def read(measured: Measured, reading: Reading) -> Estimate | None:
    """Return the estimate under one reading of invalid rollouts."""
    if reading == "failed" and measured.pessimist is not None:
        return measured.pessimist
    return measured.estimate


def split_budget(policy: GatePolicy, evidence: Sequence[Evidence]) -> Budget:
    """Return the shares of the levels that exist; the others' shares go to the domains."""
    comparable = [
        item.first
        for item in evidence
        if item.first.problem is None and item.first.policy.tier != "advisory"
    ]
    budget = policy.budget
    domains, groups, overall = budget.domains, budget.groups, budget.overall
    members = [item.group for item in comparable if item.group is not None]
    if len(members) == len(set(members)):
        domains, groups = domains + groups, 0.0
    if len(comparable) < 2:
        domains, overall = domains + overall, 0.0
    return type(budget)(domains=domains, groups=groups, overall=overall)


def judge_domains(
    policy: GatePolicy, evidence: Sequence[Evidence], share: float
) -> dict[str, Judgement]:
    """Return the judgement of every domain.

    Args:
        policy: The gate policy.
        evidence: All domains.
        share: Chance of one false block among all the domains.
    """
    left_out = _judge_reading(policy, evidence, share, "left-out")
    if not any(item.shown.pessimist for item in evidence):
        return left_out
    failed = _judge_reading(policy, evidence, share, "failed")
    return {
        item.name: _both_readings(item, left_out[item.name], failed[item.name]) for item in evidence
    }


def pt(fraction: float, *, sign: bool = False) -> str:
    """Return a fraction in percentage points."""
    number = f"{100 * fraction:+.2f}" if sign else f"{100 * fraction:.4g}"
    return f"{number.replace('-', '−')} pt"  # noqa: RUF001 - the typographic minus is meant


def between(estimate: Estimate, alpha: float) -> str:
    """Return an estimate with its bounds, for people."""
    return (
        f"{pt(estimate.delta, sign=True)} "
        f"({pt(estimate.lower(alpha), sign=True)} to {pt(estimate.upper(alpha), sign=True)})"
    )


def promoted(estimate: Estimate, margin: float, alpha: float) -> str:
    """Return why an estimate is inside its margin."""
    text = f"{between(estimate, alpha)} stays above −{pt(margin)}"  # noqa: RUF001 - minus
    if estimate.upper(alpha) < 0:
        text += "; a real drop, inside the margin"
    return text


def _both_readings(item: Evidence, left_out: Judgement, failed: Judgement) -> Judgement:
    if item.shown.pessimist is None:
        return left_out
    same = left_out.verdict == failed.verdict
    reason = (
        f"the verdict depends on invalid rollouts: {left_out.verdict} when they are left out, "
        f"{failed.verdict} when they count as failed"
    )
    return Judgement(
        verdict=left_out.verdict if same else "inconclusive",
        cause=left_out.cause if same else "validity",
        reason=left_out.reason if same else reason,
        p_adjusted=left_out.p_adjusted,
        if_left_out=left_out.verdict,
        if_invalid_failed=failed.verdict,
    )


def _judge_reading(
    policy: GatePolicy, evidence: Sequence[Evidence], share: float, reading: Reading
) -> dict[str, Judgement]:
    # Advisory domains never block, so they must not cost the others any power.
    judged: dict[str, Judgement] = {}
    for advisory in (False, True):
        family = [item for item in evidence if (item.first.policy.tier == "advisory") is advisory]
        adjusted = _adjusted(policy, family, reading)
        for item in family:
            judged[item.name] = _judge(policy, item, adjusted, share, reading)
    return judged


def _adjusted(
    policy: GatePolicy, family: Sequence[Evidence], reading: Reading
) -> Mapping[str, float]:
    """Return Holm-adjusted p-values: over all domains, or over the flagged on fresh rollouts."""
    p_values: dict[str, float] = {}
    for item in family:
        first = read(item.first, reading)
        if item.first.problem is not None or not item.first.gates or first is None:
            continue
        if policy.confirm == "holm" and item.fresh is None:
            p_values[item.name] = first.p_worse
        elif item.fresh is not None and item.fresh.problem is None and item.fresh.gates:
            again = read(item.fresh, reading)
            if again is not None and first.upper(policy.alpha) < 0:
                p_values[item.name] = again.p_worse
    return dict(zip(p_values, holm(list(p_values.values())), strict=True))


def _judge(
    policy: GatePolicy,
    item: Evidence,
    adjusted: Mapping[str, float],
    share: float,
    reading: Reading,
) -> Judgement:
    family = len(adjusted)
    shown = item.shown
    problem = item.first.problem or shown.problem
    estimate = read(shown, reading)
    if problem is not None or estimate is None:
        cause, reason = problem or ("missing", "nothing could be compared")
        return Judgement("incomparable", cause, reason)
    alpha, margin = policy.alpha, shown.policy.margin
    p_adjusted = adjusted.get(item.name)
    if not shown.gates:
        reason = (
            f"{estimate.units} independent tasks; fewer than {shown.policy.min_tasks} neither "
            "promote nor block"
        )
        return Judgement("inconclusive", "few-tasks", reason, p_adjusted)
    if estimate.lower(alpha) > -margin:
        return Judgement("promote", "inside-margin", promoted(estimate, margin, alpha), p_adjusted)
    tested = estimate if item.fresh is None else read(item.fresh, reading)
    flagged = tested is not None and tested.upper(alpha) < 0
    beyond = tested is not None and tested.lower(alpha) <= -margin
    if flagged and beyond and p_adjusted is not None and p_adjusted <= share:
        reason = (
            f"got worse: {between(estimate, alpha)}, p {p_adjusted:.2g} after Holm over "
            f"{family} {'domain' if family == 1 else 'domains'}"
        )
        return Judgement("block", "confirmed", reason, p_adjusted)
    if item.fresh is None and flagged:
        reason = (
            f"looks worse, {between(estimate, alpha)}, but is not confirmed among {family} "
            f"domains: confirm with {policy.confirm_rollouts} fresh rollouts per task on both sides"
        )
        if policy.confirm == "fresh":
            reason = (
                f"looks worse, {between(estimate, alpha)}: confirm with "
                f"{policy.confirm_rollouts} fresh rollouts per task on both sides"
            )
        return Judgement("inconclusive", "screened", reason, p_adjusted)
    reason = f"{between(estimate, alpha)} leaves open whether it dropped by {pt(margin)} or not"
    return Judgement("inconclusive", "imprecise", reason, p_adjusted)
