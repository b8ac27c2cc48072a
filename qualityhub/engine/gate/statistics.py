"""The one estimator: paired difference per task, Student t over tasks or clusters.

All changes are candidate minus baseline, so a regression is below zero; all bounds are one-sided.
Sums are exact (``fsum``), so that the order of tasks changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, fsum, inf, log, sqrt
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from qualityhub.engine.gate.exact import mcnemar_worse, tango_lower, tango_upper

if TYPE_CHECKING:
    from collections.abc import Sequence

Floats = NDArray[np.float64]

FEW_DISCORDANT = 25
"""With one rollout a side and fewer changed tasks than this, the score interval replaces t."""

FEW_MOVED = 10
"""With fewer changed tasks than this, no bound is tighter than the rule of three allows."""

# A difference below this is rounding of sums, not a difference.
_DECIMALS = 12


@dataclass(frozen=True, slots=True)
class Means:
    """Task means of one side.

    Attributes:
        mean: Mean reward per task.
        n: Rollouts per task, at least 1.
        variance: Unbiased variance of one rollout per task; NaN for a single rollout.
    """

    mean: Floats
    n: Floats
    variance: Floats

    @classmethod
    def from_sums(cls, n: Floats, total: Floats, squares: Floats) -> Means:
        """Build from rollouts, sum and sum of squares per task."""
        mean = total / n
        with np.errstate(invalid="ignore", divide="ignore"):
            variance = np.maximum(squares - total * mean, 0.0) / (n - 1)
        return cls(mean, n, np.where(n > 1, variance, np.nan))


@dataclass(frozen=True, slots=True)
class Estimate:
    """What is known about the change of one domain, group or whole checkpoint.

    Attributes:
        n: Paired tasks.
        units: Independent units: tasks, or clusters where tasks share a parent.
        delta: Mean change.
        se: Standard error of ``delta`` with run noise; infinite for a single unit.
        df: Degrees of freedom of t.
        moved: Tasks whose mean changed at all.
        reach: Largest change a task can show: 1 for pass rates.
        spread: Whether the differences vary; without variation there is no t interval.
        run_noise: Run-to-run standard deviation that is part of ``se``.
        discordant: (worse, better) tasks where exact methods apply, else None.
        se_fixed: Standard error for these very tasks, None for single rollouts.
        omega2: Variance of the true change between tasks, None for single rollouts.
        sigma_w2: Variance of one pair of rollouts within a task, None for single rollouts.
    """

    n: int
    units: int
    delta: float
    se: float
    df: float
    moved: int
    reach: float = 1.0
    spread: bool = True
    run_noise: float = 0.0
    discordant: tuple[int, int] | None = None
    se_fixed: float | None = None
    omega2: float | None = None
    sigma_w2: float | None = None

    def lower(self, alpha: float = 0.05) -> float:
        """Return the bound that the true change exceeds with probability 1 - alpha."""
        if self.units < 2:
            return -self.reach
        if self.discordant:
            bound = tango_lower(*self.discordant, self.n, alpha)
        else:
            bound = self.delta - self._half_width(alpha)
        if self._thin:
            bound = min(bound, self._rule_of_three(alpha, self.delta))
        return max(bound, -self.reach)

    def upper(self, alpha: float = 0.05) -> float:
        """Return the bound that the true change stays below with probability 1 - alpha."""
        if self.units < 2:
            return self.reach
        if self.discordant:
            bound = tango_upper(*self.discordant, self.n, alpha)
        else:
            bound = self.delta + self._half_width(alpha)
        if self._thin:
            bound = max(bound, -self._rule_of_three(alpha, -self.delta))
        return min(bound, self.reach)

    @property
    def p_worse(self) -> float:
        """One-sided p-value of "it did not get worse"."""
        return self._p(self.delta, self.discordant)

    @property
    def p_better(self) -> float:
        """One-sided p-value of "it did not get better"."""
        worse_better = self.discordant
        return self._p(-self.delta, worse_better[::-1] if worse_better else None)

    def p_below(self, change: float) -> float:
        """Return the one-sided p-value of "the change is at least ``change``" by t."""
        if self.units < 2 or self.se == 0:
            return 0.5
        return float(stdtr(self.df, (self.delta - change) / self.se))

    @property
    def _thin(self) -> bool:
        return not self.spread or self.moved < FEW_MOVED

    def _p(self, delta: float, discordant: tuple[int, int] | None) -> float:
        if self.units < 2 or delta == 0:
            return 0.5
        if discordant:
            return mcnemar_worse(*discordant)
        if self.spread or self.run_noise:
            return float(stdtr(self.df, delta / self.se))
        # No spread: the level at which the rule of three would just reach zero.
        p = exp(-self.units * abs(delta) / (self.reach + abs(delta)) / _THREE)
        return min(p, 0.5) if delta < 0 else max(1 - p, 0.5)

    def _half_width(self, alpha: float) -> float:
        return float(stdtrit(self.df, 1 - alpha)) * self.se

    def _rule_of_three(self, alpha: float, delta: float) -> float:
        # 3/n at 5 %: a share of the tasks that large may behave in the worst way and still be
        # absent from n tasks with probability 5 %.
        unseen = min(1.0, -log(alpha) * _THREE / self.units)
        width = unseen * (self.reach + delta)
        if self.run_noise:
            width += float(stdtrit(self.df, 1 - alpha)) * sqrt(2) * self.run_noise
        return delta - width


_THREE = 3 / -log(0.05)


def paired_estimate(
    baseline: Means,
    candidate: Means,
    *,
    clusters: Sequence[str] | None = None,
    run_noise: float = 0.0,
) -> Estimate:
    """Return the estimate of one domain from the task means of both sides, in the same order.

    Args:
        baseline: Task means of the baseline; at least one task.
        candidate: Task means of the candidate, same tasks.
        clusters: What each task shares with others; tasks without one stand for themselves.
        run_noise: Standard deviation between runs that rollouts do not see (from A/A reruns).
    """
    differences = np.round(candidate.mean - baseline.mean, _DECIMALS)
    n = len(differences)
    delta = fsum(differences.tolist()) / n
    deviations = differences - delta
    spread = bool(differences.min() != differences.max())
    units, variance = _variance_of_mean(deviations, clusters)
    worse, better = int((differences < 0).sum()), int((differences > 0).sum())
    values = np.concatenate([baseline.mean, candidate.mean])
    exact = (
        clusters is None
        and not run_noise
        and 0 < worse + better < FEW_DISCORDANT
        and bool((baseline.n == 1).all() and (candidate.n == 1).all())
        and bool(((values == 0) | (values == 1)).all())
    )
    se_fixed, omega2, sigma_w2 = _variance_split(baseline, candidate, deviations)
    return Estimate(
        n=n,
        units=units,
        delta=delta if spread else float(differences[0]),
        se=sqrt((variance if spread else 0.0) + 2 * run_noise**2) if units > 1 else inf,
        df=max(units - 1, 1),
        moved=worse + better,
        reach=max(1.0, float(values.max() - values.min())),
        spread=spread,
        run_noise=run_noise,
        discordant=(worse, better) if exact else None,
        se_fixed=se_fixed,
        omega2=omega2,
        sigma_w2=sigma_w2,
    )


def pooled_estimate(parts: Sequence[Estimate]) -> Estimate:
    """Return the task-weighted mean change over domains; domains are strata.

    Args:
        parts: At least one estimate.
    """
    n = sum(part.n for part in parts)
    shares = [part.n / n for part in parts]
    # A single task says nothing about its own variance: the worst case stands in.
    variances = [
        (share * (part.se if part.units > 1 else part.reach)) ** 2
        for share, part in zip(shares, parts, strict=True)
    ]
    variance = fsum(variances)
    weights = fsum(v * v / part.df for v, part in zip(variances, parts, strict=True))
    return Estimate(
        n=n,
        units=sum(part.units for part in parts),
        delta=fsum(share * part.delta for share, part in zip(shares, parts, strict=True)),
        se=sqrt(variance),
        df=variance * variance / weights if weights else fsum(part.df for part in parts),
        moved=sum(part.moved for part in parts),
        reach=max(part.reach for part in parts),
        spread=any(part.spread or part.units < 2 for part in parts),
        run_noise=sqrt(
            fsum((share * part.run_noise) ** 2 for share, part in zip(shares, parts, strict=True))
        ),
        omega2=_weighted(shares, [part.omega2 for part in parts]),
        sigma_w2=_weighted(shares, [part.sigma_w2 for part in parts]),
    )


def equivalence_p(estimate: Estimate, margin: float) -> float:
    """Return the TOST p-value of "the change is outside (-margin, margin)"; small is equivalent."""
    return max(1 - estimate.p_below(-margin), estimate.p_below(margin))


def equivalent(estimate: Estimate, margin: float, alpha: float = 0.05) -> bool:
    """Whether both bounds lie inside the margin: equal quality, not merely no difference seen."""
    return estimate.lower(alpha) > -margin and estimate.upper(alpha) < margin


def _variance_of_mean(deviations: Floats, clusters: Sequence[str] | None) -> tuple[int, float]:
    n = len(deviations)
    if clusters is None:
        sums, count = deviations, n
    else:
        # A task without a cluster is its own.
        names = [name or f"\0{index}" for index, name in enumerate(clusters)]
        _, inverse = np.unique(np.array(names), return_inverse=True)
        sums = np.bincount(inverse, weights=deviations).astype(np.float64)
        count = len(sums)
    if count < 2:
        return count, inf
    squares = fsum((sums * sums).tolist())
    return count, count / (count - 1) * squares / n**2


def _variance_split(
    baseline: Means, candidate: Means, deviations: Floats
) -> tuple[float | None, float | None, float | None]:
    known = ~(np.isnan(baseline.variance) | np.isnan(candidate.variance))
    n = len(deviations)
    if n < 2 or 2 * int(known.sum()) < n:
        return None, None, None
    before, after = baseline.variance[known], candidate.variance[known]
    within = before / baseline.n[known] + after / candidate.n[known]
    mean_within = fsum(within.tolist()) / len(within)
    total = fsum((deviations * deviations).tolist()) / (n - 1)
    return (
        sqrt(mean_within / n),
        max(0.0, total - mean_within),
        fsum((before + after).tolist()) / len(within),
    )


def _weighted(shares: list[float], values: list[float | None]) -> float | None:
    known = [
        (share, value) for share, value in zip(shares, values, strict=True) if value is not None
    ]
    if not known:
        return None
    return fsum(share * value for share, value in known) / fsum(share for share, _ in known)
