"""How many more rollouts would settle an open verdict."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, isfinite, log, sqrt
from typing import TYPE_CHECKING

from scipy.special import ndtr, ndtri

if TYPE_CHECKING:
    from qualityhub.engine.gate.statistics import Estimate

MOST_ROLLOUTS = 1000
"""More rollouts per task than this are not advised: more tasks are the way then."""


@dataclass(frozen=True, slots=True)
class Needed:
    """What it takes.

    Attributes:
        rollouts_per_task: Total per task and side (fresh ones where the reason says so), or None
            where more rollouts of the same tasks cannot settle it.
        tasks: Paired tasks in total.
        reason: One clause.
        promote_at_no_change: Chance to promote then, if nothing changed; None where unknown.
        promote_at_estimate: Chance to promote then, if the change is what it looks like now.
        block_at_estimate: Chance to block then, likewise.
    """

    rollouts_per_task: int | None
    tasks: int
    reason: str
    promote_at_no_change: float | None = None
    promote_at_estimate: float | None = None
    block_at_estimate: float | None = None


def rollouts_for(
    n: int, sigma_w2: float, omega2: float, target_se: float, run_noise: float = 0.0
) -> float | None:
    """Return rollouts per task and side that reach a standard error, None where none do.

    Args:
        n: Paired tasks.
        sigma_w2: Variance of one pair of rollouts within a task.
        omega2: Variance of the true change between tasks.
        target_se: Standard error to reach.
        run_noise: Standard deviation between runs.
    """
    room = n * target_se**2 - omega2 - 2 * n * run_noise**2
    return sigma_w2 / room if room > 0 else None


def tasks_for(
    k: float, sigma_w2: float, omega2: float, target_se: float, run_noise: float = 0.0
) -> float | None:
    """Return tasks that reach a standard error at k rollouts, None below the run-noise floor."""
    room = target_se**2 - 2 * run_noise**2
    return (omega2 + sigma_w2 / k) / room if room > 0 else None


def needed_to_decide(
    estimate: Estimate,
    *,
    margin: float,
    rollouts: float,
    alpha: float = 0.05,
    power: float = 0.9,
    min_tasks: int = 20,
) -> Needed:
    """Return what settles an inconclusive comparison.

    Args:
        estimate: The comparison as it stands.
        margin: Accepted drop.
        rollouts: Rollouts per task and side now (harmonic mean where they differ).
        alpha: One-sided level of the bounds.
        power: Chance of a decision that is planned for.
        min_tasks: Fewest tasks that may decide.
    """
    n = estimate.units
    if n < min_tasks:
        return Needed(
            ceil(rollouts),
            min_tasks,
            f"{n} independent tasks decide nothing; at least {min_tasks} are needed",
        )
    sigma_w2, omega2, assumed = _variances(estimate, rollouts)
    if sigma_w2 + omega2 == 0:
        tasks = ceil(-log(alpha) / margin * 3 / -log(0.05)) + 1
        return Needed(
            ceil(rollouts),
            max(tasks, n),
            f"no task changed; the rule of three certifies {100 * margin:g} pt from {tasks} tasks",
        )
    z = float(-ndtri(alpha) + ndtri(power))
    plan = _plan(n, (sigma_w2, omega2), margin / z, estimate.run_noise, rollouts)
    if plan is None or (plan[0] is not None and plan[0] <= rollouts):
        # Enough for "no change" already: what keeps it open is an estimate between 0 and -margin.
        distance = max(margin + estimate.delta, -estimate.delta) / z
        plan = _plan(n, (sigma_w2, omega2), distance, estimate.run_noise, rollouts)
    if plan is None:
        noise = 100 * float(-ndtri(alpha)) * sqrt(2) * estimate.run_noise
        return Needed(
            None,
            n,
            f"the margin of {100 * margin:g} pt is too near the run noise of ±{noise:.2f} pt: "
            "no number of rollouts settles it",
        )
    k, tasks, reason = plan
    se = sqrt((omega2 + sigma_w2 / (k or max(rollouts, 1))) / tasks + 2 * estimate.run_noise**2)
    cut = float(-ndtri(alpha))
    return Needed(
        k,
        tasks,
        reason + assumed,
        promote_at_no_change=float(ndtr(margin / se - cut)),
        promote_at_estimate=float(ndtr((estimate.delta + margin) / se - cut)),
        block_at_estimate=float(ndtr(-estimate.delta / se - cut)),
    )


def _variances(estimate: Estimate, rollouts: float) -> tuple[float, float, str]:
    total = estimate.units * (estimate.se**2 - 2 * estimate.run_noise**2)
    total = max(total, 0.0) if isfinite(total) else 0.0
    if estimate.sigma_w2 is None or estimate.omega2 is None:
        assumed = " (one rollout per task: all variation is taken as chance)"
        return total * rollouts, 0.0, assumed
    if estimate.units != estimate.n:
        # Clustered: what the rollouts do not explain belongs to the clusters.
        return estimate.sigma_w2, max(0.0, total - estimate.sigma_w2 / rollouts), ""
    return estimate.sigma_w2, estimate.omega2, ""


def _plan(
    n: int, variances: tuple[float, float], target_se: float, run_noise: float, rollouts: float
) -> tuple[int | None, int, str] | None:
    sigma_w2, omega2 = variances
    k = rollouts_for(n, sigma_w2, omega2, target_se, run_noise)
    if k is not None and k <= MOST_ROLLOUTS:
        whole = max(1, ceil(k))
        return whole, n, f"{whole} rollouts per task on both sides would settle it"
    now = max(rollouts, 1.0)
    tasks = tasks_for(now, sigma_w2, omega2, target_se, run_noise)
    if tasks is None:
        return None
    total = max(ceil(tasks), n)
    reason = f"more rollouts of the same {n} tasks cannot settle it; {total} tasks"
    return None, total, f"{reason} with {ceil(now)} rollouts each would"
