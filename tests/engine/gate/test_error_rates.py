"""Simulations: what the gate promises about its errors is measured here, with fixed seeds.

World: task i passes with probability p_i ~ Beta(a, b) under the baseline. The candidate's logit is
shifted so that the mean moves by exactly ``delta``, plus task-level churn N(0, tau^2): with churn,
single tasks get better or worse although the mean does not move.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from scipy import optimize, special, stats

from qualityhub.engine.gate.decide import decide
from qualityhub.engine.gate.policy import GatePolicy, gate_policy_from
from qualityhub.engine.gate.rollups import TaskRollup
from qualityhub.engine.gate.statistics import Means, paired_estimate

U_SHAPED, MIDDLING, NEARLY_SOLVED = (0.6, 0.4), (2.0, 2.0), (9.0, 1.0)


@cache
def logit_shift(profile, tau, delta):
    a, b = profile
    u = (np.arange(20_000) + 0.5) / 20_000
    logits = special.logit(np.clip(stats.beta.ppf(u, a, b), 1e-12, 1 - 1e-12))
    z, w = np.polynomial.hermite_e.hermegauss(15)
    w = w / w.sum()

    def gap(c):
        return sum(
            wi * special.expit(logits + c + tau * zi).mean() for zi, wi in zip(z, w, strict=True)
        ) - (a / (a + b) + delta)

    return optimize.brentq(gap, -12, 12)


def draw(rng, n, k, *, profile=U_SHAPED, tau=0.0, delta=0.0):
    p = np.clip(rng.beta(*profile, n), 1e-12, 1 - 1e-12)
    q = p
    if tau or delta:
        q = special.expit(
            special.logit(p) + logit_shift(profile, tau, delta) + tau * rng.standard_normal(n)
        )
    return rng.binomial(k, p), rng.binomial(k, q)


def arm(passes, k):
    return [
        TaskRollup(task=f"t{i}", n=k, passes=s, sum=float(s), sumsq=float(s))
        for i, s in enumerate(passes.tolist())
    ]


def estimate(base, cand, k):
    n = np.full(len(base), float(k))
    return paired_estimate(
        *[Means.from_sums(n, x.astype(float), x.astype(float)) for x in (base, cand)]
    )


def verdicts(reps, n, k, *, delta, margin=0.02, seed=0, **world):
    """Shares of promote and block by the rule of one domain alone."""
    rng = np.random.default_rng(seed)
    promoted = blocked = 0
    for _ in range(reps):
        e = estimate(*draw(rng, n, k, delta=delta, **world), k)
        if e.lower() > -margin:
            promoted += 1
        elif e.upper() < 0 and e.p_worse <= 0.05:
            blocked += 1
    return promoted / reps, blocked / reps


def at_most(rate, reps):
    """Largest share that chance alone explains at one in ten thousand."""
    return stats.binom.isf(1e-4, reps, rate) / reps


def at_least(rate, reps):
    return stats.binom.ppf(1e-4, reps, rate) / reps


# ---------------------------------------------------------------- seeded small versions


def decisions(reps, delta):
    rng = np.random.default_rng(11)
    for _ in range(reps):
        base, cand = draw(rng, 200, 4, delta=delta)
        yield decide(GatePolicy(), {"d": arm(base, 4)}, {"d": arm(cand, 4)})


def test_the_whole_gate_blocks_an_unchanged_checkpoint_at_most_at_its_level():
    blocks = sum(decision.verdict == "block" for decision in decisions(400, 0.0))
    assert blocks / 400 <= at_most(0.05, 400)


def test_the_whole_gate_finds_five_points_with_the_published_power():
    blocks = sum(decision.verdict == "block" for decision in decisions(400, -0.05))
    assert at_least(0.88, 400) <= blocks / 400 <= at_most(0.89, 400)


@pytest.mark.parametrize(
    ("n", "k", "profile"), [(20, 1, U_SHAPED), (50, 4, NEARLY_SOLVED), (50, 1, MIDDLING)]
)
def test_small_domains_keep_their_level(n, k, profile):
    _, blocked = verdicts(1500, n, k, delta=0.0, margin=0.0, profile=profile)
    assert blocked <= at_most(0.05, 1500)


def test_a_drop_as_large_as_the_margin_is_rarely_promoted():
    promoted, _ = verdicts(1500, 200, 4, delta=-0.02)
    assert promoted <= at_most(0.055, 1500)


def test_many_unchanged_domains_together_are_blocked_at_most_at_the_level():
    rng = np.random.default_rng(5)
    blocks = 0
    for _ in range(80):
        base, cand = {}, {}
        for index in range(25):
            b, c = draw(rng, 40, 4)
            base[f"d{index}"], cand[f"d{index}"] = arm(b, 4), arm(c, 4)
        blocks += decide(GatePolicy(), base, cand).verdict == "block"
    assert blocks / 80 <= at_most(0.05, 80)


# ---------------------------------------------------------------- full size


@pytest.mark.long
@pytest.mark.parametrize("profile", [U_SHAPED, MIDDLING, NEARLY_SOLVED])
@pytest.mark.parametrize("tau", [0.0, 0.7])
@pytest.mark.parametrize("k", [1, 4])
@pytest.mark.parametrize("n", [20, 50, 200, 2000])
def test_false_blocks_of_one_domain_stay_at_the_level(n, k, tau, profile):
    _, blocked = verdicts(20_000, n, k, delta=0.0, margin=0.0, profile=profile, tau=tau, seed=n + k)
    assert blocked <= 0.058


@pytest.mark.long
@pytest.mark.parametrize("profile", [U_SHAPED, MIDDLING])
@pytest.mark.parametrize(("n", "k"), [(200, 4), (200, 16), (2000, 4)])
def test_false_promotions_at_the_margin_stay_at_the_level(n, k, profile):
    promoted, _ = verdicts(20_000, n, k, delta=-0.02, profile=profile, tau=0.3, seed=n + k)
    assert promoted <= 0.058


@pytest.mark.long
@pytest.mark.parametrize(
    ("delta", "promote", "block"),
    [
        (0.01, 0.52, 0.01),
        (0.0, 0.30, 0.05),
        (-0.01, 0.14, 0.15),
        (-0.02, 0.05, 0.30),
        (-0.05, 0.0, 0.88),
    ],
)
def test_three_verdicts_come_as_often_as_published(delta, promote, block):
    promoted, blocked = verdicts(20_000, 200, 4, delta=delta, tau=0.3, seed=12)
    assert promoted == pytest.approx(promote, abs=0.015)
    assert blocked == pytest.approx(block, abs=0.015)


@pytest.mark.long
def test_the_default_policy_over_three_hundred_domains_keeps_its_level():
    sizes = np.round(
        np.exp(np.random.default_rng(16).uniform(np.log(40), np.log(300), 300))
    ).astype(int)
    policy = gate_policy_from({"groups": {f"g{g}": [f"g{g}-*"] for g in range(20)}})
    rng = np.random.default_rng(17)
    reps, blocks = 400, 0
    for _ in range(reps):
        base, cand = {}, {}
        for index, n in enumerate(sizes.tolist()):
            b, c = draw(rng, n, 4)
            name = f"g{index // 15}-{index}"
            base[name], cand[name] = arm(b, 4), arm(c, 4)
        blocks += decide(policy, base, cand).verdict == "block"
    assert blocks / reps <= at_most(0.05, reps)
