"""Small exact tests: for few discordant tasks, for many hypotheses, for flips."""

from __future__ import annotations

from functools import lru_cache
from math import comb, inf, sqrt
from typing import TYPE_CHECKING

from scipy.special import bdtr, ndtri

if TYPE_CHECKING:
    from collections.abc import Sequence


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm-adjusted p-values in the order given; reject where one is at most alpha."""
    count = len(p_values)
    adjusted = [0.0] * count
    largest = 0.0
    for rank, index in enumerate(sorted(range(count), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (count - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def mcnemar_worse(worse: int, better: int) -> float:
    """Return the exact one-sided McNemar p-value that things got worse.

    Args:
        worse: Tasks that went from pass to fail.
        better: Tasks that went from fail to pass.
    """
    return sign_test(worse, better)


def sign_test(worse: int, better: int) -> float:
    """Return P(at least ``worse`` of all that moved) when both directions are equally likely."""
    total = worse + better
    # At least `worse` worse is at most `better` better.
    return float(bdtr(better, total, 0.5)) if total else 1.0


def tango_lower(worse: int, better: int, n: int, alpha: float) -> float:
    """Return Tango's one-sided score bound below for the change of a pass rate.

    Args:
        worse: Tasks that went from pass to fail.
        better: Tasks that went from fail to pass.
        n: Paired tasks.
        alpha: One-sided level; the bound holds with probability 1 - alpha.
    """
    delta = (better - worse) / n
    z = float(-ndtri(alpha))
    low, high = -1.0, delta
    # The score falls as the assumed change grows towards the estimate: bisection is safe.
    for _ in range(80):
        middle = (low + high) / 2
        if _tango_score(worse, better, n, middle) > z:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def tango_upper(worse: int, better: int, n: int, alpha: float) -> float:
    """Return Tango's one-sided score bound above; see :func:`tango_lower`."""
    return -tango_lower(better, worse, n, alpha)


def _tango_score(worse: int, better: int, n: int, change: float) -> float:
    # Maximum-likelihood share of the worse cell under the assumed change (Tango 1998).
    linear = -better - worse + (2 * n - better + worse) * change
    constant = -worse * change * (1 - change)
    share = (sqrt(max(linear * linear - 8 * n * constant, 0.0)) - linear) / (4 * n)
    variance = n * (2 * share + change * (1 - change))
    distance = better - worse - n * change
    if variance <= 0:
        return inf if distance > 0 else 0.0
    return distance / sqrt(variance)


@lru_cache(maxsize=65536)
def flip_chances(baseline_n: int, candidate_n: int, passes: int) -> tuple[float, float]:
    """Return the chances of a pass→fail and of a fail→pass flip if nothing changed.

    All rollouts of one task are exchangeable when nothing changed, so the passes fall on the two
    sides like cards. A side passes when more than half of its rollouts do.

    Args:
        baseline_n: Rollouts of the baseline.
        candidate_n: Rollouts of the candidate.
        passes: Passes of both together.
    """
    to_fail = to_pass = 0.0
    total = comb(baseline_n + candidate_n, passes)
    for before in range(max(0, passes - candidate_n), min(baseline_n, passes) + 1):
        after = passes - before
        chance = comb(baseline_n, before) * comb(candidate_n, after) / total
        if 2 * before > baseline_n and 2 * after <= candidate_n:
            to_fail += chance
        elif 2 * before <= baseline_n and 2 * after > candidate_n:
            to_pass += chance
    return to_fail, to_pass
