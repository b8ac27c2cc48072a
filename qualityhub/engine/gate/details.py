"""What a domain's report shows beside the verdict: flips, metrics, validity; none of it blocks."""

from __future__ import annotations

from math import exp, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import stdtrit

from qualityhub.engine.gate.exact import flip_chances
from qualityhub.engine.gate.sides import METRICS
from qualityhub.engine.gate.statistics import Floats, Means, paired_estimate

if TYPE_CHECKING:
    from qualityhub.engine.gate.sides import Pairing, Side

WORST_TASKS = 10


def flips(baseline: Side, candidate: Side, pairing: Pairing) -> dict[str, Any]:
    """Return tasks that changed sides, what chance alone would do, and the worst tasks.

    A task passes on a side when more than half of its counted rollouts do.
    """
    before_n, after_n = baseline.n[pairing.baseline], candidate.n[pairing.candidate]
    before, after = baseline.passes[pairing.baseline], candidate.passes[pairing.candidate]
    passed_before, passed_after = 2 * before > before_n, 2 * after > after_n
    cases, counts = np.unique(
        np.stack([before_n, after_n, before + after], axis=1).astype(np.int64),
        axis=0,
        return_counts=True,
    )
    to_fail = to_pass = 0.0
    for (first, second, passes), count in zip(cases.tolist(), counts.tolist(), strict=True):
        chance_fail, chance_pass = flip_chances(first, second, passes)
        to_fail += count * chance_fail
        to_pass += count * chance_pass
    return {
        "pass_to_fail": int((passed_before & ~passed_after).sum()),
        "fail_to_pass": int((~passed_before & passed_after).sum()),
        "expected_pass_to_fail": to_fail,
        "expected_fail_to_pass": to_pass,
        "worst": _worst(baseline, candidate, pairing),
    }


def metrics(baseline: Side, candidate: Side, pairing: Pairing, alpha: float) -> dict[str, Any]:
    """Return the change of tokens, cost, latency and turns as ratios of geometric means.

    Only tasks with a positive amount on both sides take part. A metric that fewer than two tasks
    report is left out.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        before = (baseline.amounts / baseline.amount_counts)[:, pairing.baseline]
        after = (candidate.amounts / candidate.amount_counts)[:, pairing.candidate]
    report: dict[str, Any] = {}
    for name, old, new in zip(METRICS, before, after, strict=True):
        known = (old > 0) & (new > 0)
        if int(known.sum()) >= 2:
            report[name] = log_ratio(old[known], new[known], alpha)
    return report


def log_ratio(baseline: Floats, candidate: Floats, alpha: float = 0.05) -> dict[str, Any]:
    """Return the ratio of geometric means with one-sided bounds (paired t on logarithms)."""
    logs = np.log(candidate) - np.log(baseline)
    n = len(logs)
    mean = float(logs.mean())
    half = float(stdtrit(n - 1, 1 - alpha)) * float(logs.std(ddof=1)) / sqrt(n)
    return {
        "baseline_mean": float(baseline.mean()),
        "candidate_mean": float(candidate.mean()),
        "ratio": exp(mean),
        "lower": exp(mean - half),
        "upper": exp(mean + half),
        "n_tasks": n,
    }


def error_shares(
    baseline: Side, candidate: Side, pairing_rows: tuple[list[int], list[int]], alpha: float
) -> dict[str, Any]:
    """Return shares of invalid rollouts by side over the common tasks, and their difference.

    ``differs`` says whether the difference is more than chance at ``alpha`` on either side.
    """
    rows, other_rows = pairing_rows
    shares = []
    for side, chosen in ((baseline, rows), (candidate, other_rows)):
        shares.append(side.invalid[chosen] / side.rollouts[chosen])
    before, after = shares
    result: dict[str, Any] = {
        "baseline_invalid": float(before.mean()),
        "candidate_invalid": float(after.mean()),
        "difference": 0.0,
        "differs": False,
    }
    if before.any() or after.any():
        ones = np.ones(len(before))
        unknown = np.full(len(before), np.nan)
        estimate = paired_estimate(Means(before, ones, unknown), Means(after, ones, unknown))
        result["difference"] = estimate.delta
        result["differs"] = estimate.lower(alpha) > 0 or estimate.upper(alpha) < 0
    return result


def _worst(baseline: Side, candidate: Side, pairing: Pairing) -> list[dict[str, Any]]:
    before = baseline.total[pairing.baseline] / baseline.n[pairing.baseline]
    after = candidate.total[pairing.candidate] / candidate.n[pairing.candidate]
    change = np.round(after - before, 12)
    worst = [row for row in np.argsort(change, kind="stable")[:WORST_TASKS] if change[row] < 0]
    return [
        {
            "task": baseline.tasks[pairing.baseline[row]],
            "baseline": float(before[row]),
            "candidate": float(after[row]),
            "delta": float(change[row]),
            "trace_ref": candidate.traces[pairing.candidate[row]] or None,
        }
        for row in worst
    ]
