"""One domain: from the rollups of both sides to what the verdict is made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from qualityhub.engine.gate.decision import Numbers
from qualityhub.engine.gate.details import error_shares, flips, metrics
from qualityhub.engine.gate.sides import Pairing, Side, pair, read_side
from qualityhub.engine.gate.statistics import Estimate, paired_estimate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qualityhub.engine.gate.decision import Cause
    from qualityhub.engine.gate.policy import DomainPolicy, GatePolicy
    from qualityhub.engine.gate.rollups import TaskRollup


@dataclass(slots=True)
class Measured:
    """One domain as measured; the verdict comes later, when all domains are known.

    Attributes:
        name: Domain.
        policy: What holds for it.
        group: Its group, or None.
        problem: (cause, sentence) where it cannot be compared, else None.
        estimate: Invalid rollouts left out; None where it cannot be compared.
        pessimist: Invalid rollouts counted as failed, where there are any.
        baseline_mean: Mean over paired tasks.
        candidate_mean: Likewise.
        rollouts: Counted rollouts by side.
        k: Harmonic mean of rollouts per task and side.
        coverage: Share of tasks compared.
        excluded: Tasks that are not, with the reason.
        flips: See :func:`~qualityhub.engine.gate.details.flips`.
        metrics: See :func:`~qualityhub.engine.gate.details.metrics`.
        validity: Shares of invalid rollouts and counts.
        unnamed: Paired tasks without a digest on one side.
        cost_per_rollout: Mean recorded cost, None where none is recorded.
        negative: Whether model failures count as 0 although rewards go below it.
        digests: Of the rollups by side.
    """

    name: str
    policy: DomainPolicy
    group: str | None
    problem: tuple[Cause, str] | None = None
    estimate: Estimate | None = None
    pessimist: Estimate | None = None
    baseline_mean: float | None = None
    candidate_mean: float | None = None
    rollouts: dict[str, int] = field(default_factory=lambda: {"candidate": 0, "baseline": 0})
    k: float = 0.0
    coverage: float = 0.0
    excluded: list[tuple[str, str]] = field(default_factory=list)
    flips: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    validity: dict[str, Any] = field(default_factory=dict)
    unnamed: int = 0
    cost_per_rollout: float | None = None
    negative: bool = False
    digests: dict[str, str] = field(default_factory=dict)

    @property
    def gates(self) -> bool:
        """Whether it may decide anything: comparable, and with enough independent tasks."""
        return self.estimate is not None and self.estimate.units >= self.policy.min_tasks

    def numbers(self, alpha: float) -> Numbers:
        """Return the estimate as documents show it."""
        if self.estimate is None:
            return Numbers()
        return Numbers(
            n_tasks=self.estimate.n,
            baseline_mean=self.baseline_mean,
            candidate_mean=self.candidate_mean,
            delta=self.estimate.delta,
            lower=self.estimate.lower(alpha),
            upper=self.estimate.upper(alpha),
            p_worse=self.estimate.p_worse,
            se=self.estimate.se,
        )


def measure(
    name: str,
    policy: GatePolicy,
    baseline: Sequence[TaskRollup],
    candidate: Sequence[TaskRollup],
) -> Measured:
    """Return one domain as measured."""
    rules = policy.for_domain(name)
    result = Measured(name, rules, policy.group_of(name))
    before = read_side(baseline, model_failure=rules.model_failure, scale=rules.scale)
    after = read_side(candidate, model_failure=rules.model_failure, scale=rules.scale)
    result.digests = {"baseline": before.digest, "candidate": after.digest}
    pairing = pair(before, after)
    result.coverage = pairing.coverage
    result.excluded = pairing.excluded
    result.unnamed = pairing.unnamed
    result.problem = _missing(before, after, pairing)
    result.rollouts = {"candidate": int(after.n.sum()), "baseline": int(before.n.sum())}
    result.validity = _validity(before, after, policy.alpha)
    if not pairing.baseline:
        return result
    result.flips = flips(before, after, pairing)
    result.metrics = metrics(before, after, pairing, policy.alpha)
    result.cost_per_rollout = _cost(before, after)
    result.negative = rules.model_failure == "fail" and any(
        bool((side.total < 0).any() and side.failures.any()) for side in (before, after)
    )
    _estimate(result, before, after, pairing)
    result.problem = result.problem or _incomparable(result, policy, pairing)
    return result


def _estimate(result: Measured, before: Side, after: Side, pairing: Pairing) -> None:
    rules = result.policy
    result.estimate = _paired(before, after, pairing, rules, invalid_as_failed=False)
    old = before.means(pairing.baseline, invalid_as_failed=False)
    new = after.means(pairing.candidate, invalid_as_failed=False)
    result.baseline_mean, result.candidate_mean = float(old.mean.mean()), float(new.mean.mean())
    result.k = 2 / float((1 / old.n + 1 / new.n).mean())
    if before.invalid.any() or after.invalid.any():
        everything = pair(before, after, invalid_as_failed=True)
        result.pessimist = _paired(before, after, everything, rules, invalid_as_failed=True)


def _paired(
    before: Side, after: Side, pairing: Pairing, rules: DomainPolicy, *, invalid_as_failed: bool
) -> Estimate:
    clusters = [before.clusters[row] for row in pairing.baseline]
    return paired_estimate(
        before.means(pairing.baseline, invalid_as_failed=invalid_as_failed),
        after.means(pairing.candidate, invalid_as_failed=invalid_as_failed),
        clusters=clusters if any(clusters) else None,
        run_noise=rules.run_noise,
    )


def _missing(before: Side, after: Side, pairing: Pairing) -> tuple[Cause, str] | None:
    if not after.tasks:
        return "missing", "the candidate has no rollouts of this domain"
    if not before.tasks:
        return "missing", "the baseline has no rollouts of this domain"
    if not pairing.baseline:
        return "coverage", f"no task can be compared: {_main_reason(pairing)}"
    return None


def _incomparable(
    result: Measured, policy: GatePolicy, pairing: Pairing
) -> tuple[Cause, str] | None:
    if pairing.coverage < result.policy.coverage:
        reason = (
            f"only {len(pairing.baseline)} of {pairing.union} tasks ({_percent(pairing.coverage)}) "
            f"can be compared; {_percent(result.policy.coverage)} are asked for: "
            f"{_main_reason(pairing)}"
        )
        return "coverage", reason
    difference = result.validity["difference"]
    if result.validity["differs"] and abs(difference) > policy.max_error_difference:
        reason = (
            f"invalid rollouts differ: candidate {_percent(result.validity['candidate_invalid'])}, "
            f"baseline {_percent(result.validity['baseline_invalid'])}; at most "
            f"{_percent(policy.max_error_difference)} of difference is accepted"
        )
        return "error-rates", reason
    return None


def _main_reason(pairing: Pairing) -> str:
    reasons = [reason for _, reason in pairing.excluded]
    most = max(sorted(set(reasons)), key=reasons.count)
    return f"{reasons.count(most)} excluded because {most}"


def _validity(before: Side, after: Side, alpha: float) -> dict[str, Any]:
    theirs = {task: row for row, task in enumerate(after.tasks)}
    rows = [row for row, task in enumerate(before.tasks) if task in theirs]
    report: dict[str, Any] = {
        "baseline_invalid": 0.0,
        "candidate_invalid": 0.0,
        "difference": 0.0,
        "differs": False,
    }
    if rows:
        others = [theirs[before.tasks[row]] for row in rows]
        report = error_shares(before, after, (rows, others), alpha)
    for label, side in (("baseline", before), ("candidate", after)):
        report[f"{label}_rollouts"] = {
            "valid": int((side.rollouts - side.invalid - side.failures).sum()),
            "model_failure": int(side.failures.sum()),
            "invalid": int(side.invalid.sum()),
        }
    return report


def _cost(before: Side, after: Side) -> float | None:
    # Row 2 of the metrics is the cost.
    total = float(before.amounts[2].sum() + after.amounts[2].sum())
    count = float(before.amount_counts[2].sum() + after.amount_counts[2].sum())
    return total / count if count else None


def _percent(share: float) -> str:
    return f"{100 * share:.4g} %"
