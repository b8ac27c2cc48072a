from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qualityhub.engine.gate.exact import (
    flip_chances,
    holm,
    mcnemar_worse,
    sign_test,
    tango_lower,
    tango_upper,
)
from qualityhub.engine.gate.statistics import (
    Means,
    equivalence_p,
    equivalent,
    paired_estimate,
    pooled_estimate,
)


def means(passes, k):
    passes = np.asarray(passes, float)
    n = np.full(len(passes), float(k))
    return Means.from_sums(n, passes, passes)


def single(values):
    values = np.asarray(values, float)
    return Means.from_sums(np.ones(len(values)), values, values**2)


def estimate(baseline, candidate, k, **kwargs):
    return paired_estimate(means(baseline, k), means(candidate, k), **kwargs)


V1 = ([4, 4, 3, 2, 4, 1, 0, 3], [3, 4, 1, 2, 2, 1, 1, 2])


def test_vector_of_eight_tasks_by_four_rollouts():
    e = estimate(*V1, 4)
    assert e.delta == -0.15625
    assert e.se == pytest.approx(0.09375, abs=1e-12)
    # The t interval itself; so few changed tasks are widened by the rule of three below.
    assert e.delta - e._half_width(0.05) == pytest.approx(-0.33386674, abs=5e-9)
    assert e.delta + e._half_width(0.05) == pytest.approx(0.02136674, abs=5e-9)
    assert e.p_worse == pytest.approx(0.06975979, abs=5e-9)
    assert e.omega2 == 0
    assert e.se_fixed == pytest.approx(0.10974639, abs=5e-9)
    assert e.sigma_w2 == pytest.approx(4 * 0.09635417, abs=5e-8)
    assert sign_test(4, 1) == 0.1875


def test_vector_of_clusters():
    values = [1, 1, 0, 0, 0, 1, 1, 1, 0, 1]
    clusters = list("aaabbcccdd")
    e = paired_estimate(single([0] * 10), single(values), clusters=clusters)
    assert e.delta == pytest.approx(0.6)
    assert e.units == 4
    assert e.se == pytest.approx(0.19866219, abs=5e-9)
    assert paired_estimate(single([0] * 10), single(values)).se == pytest.approx(
        0.16329932, abs=5e-9
    )


def test_vectors_of_mcnemar_and_tango():
    assert mcnemar_worse(15, 5) == pytest.approx(0.02069473, abs=5e-9)
    assert tango_lower(15, 5, 100, 0.05) == pytest.approx(-0.17642, abs=1e-5)
    assert tango_upper(15, 5, 100, 0.05) == pytest.approx(-0.02819, abs=1e-5)


def test_vector_of_holm():
    p = [0.001, 0.008, 0.012, 0.02, 0.03, 0.041, 0.2, 0.5, 0.7, 0.9]
    assert holm(p) == pytest.approx([0.01, 0.072, 0.096, 0.14, 0.18, 0.205, 0.8, 1, 1, 1])
    assert holm(p[::-1]) == pytest.approx(holm(p)[::-1])
    assert holm([]) == []


def test_vector_of_equivalence():
    base = [0.5, 0.75, 1, 0.25, 0.5, 0.75, 1, 0, 0.5, 0.75]
    cand = [0.5, 0.5, 1, 0.25, 0.75, 0.75, 1, 0, 0.5, 0.5]
    e = paired_estimate(single(base), single(cand))
    assert e.delta == pytest.approx(-0.025)
    assert e.se == pytest.approx(0.04487637, abs=5e-9)
    assert equivalence_p(e, 0.10) == pytest.approx(0.06450273, abs=5e-9)
    assert not equivalent(e, 0.10)


def test_no_difference_seen_in_few_tasks_is_no_equivalence():
    assert not equivalent(estimate([4] * 25, [4] * 25, 4), 0.02)
    assert equivalent(estimate([4] * 200, [4] * 200, 4), 0.02)


@pytest.mark.parametrize(("tasks", "certified"), [(149, False), (151, True), (200, True)])
def test_identical_tasks_certify_by_the_rule_of_three_alone(tasks, certified):
    e = estimate([4] * tasks, [4] * tasks, 4)
    assert e.lower() == pytest.approx(-3 / tasks)
    assert e.upper() == pytest.approx(3 / tasks)
    assert (e.lower() > -0.02) is certified
    assert e.p_worse == 0.5


def test_one_worse_task_never_certifies_more_than_none():
    none = estimate([4] * 200, [4] * 200, 4)
    one = estimate([4] * 200, [0] + [4] * 199, 4)
    assert one.lower() < none.lower()


def test_a_uniform_drop_without_spread_is_still_found():
    e = estimate([4] * 60, [3] * 60, 4)
    assert e.upper() < 0
    assert e.p_worse < 1e-4
    slight = paired_estimate(single([0.5] * 20), single([0.499] * 20))
    assert slight.upper() > 0
    assert slight.p_worse > 0.05


def test_run_noise_widens_the_interval():
    quiet, loud = estimate(*V1, 4), estimate(*V1, 4, run_noise=0.05)
    assert loud.se == pytest.approx((quiet.se**2 + 2 * 0.05**2) ** 0.5)
    flat = estimate([4] * 200, [4] * 200, 4, run_noise=0.01)
    assert flat.lower() < -3 / 200


def test_a_single_task_says_nothing():
    e = estimate([4], [0], 4)
    assert (e.lower(), e.upper(), e.p_worse) == (-1.0, 1.0, 0.5)


def test_pooling_weighs_every_task_the_same():
    rng = np.random.default_rng(1)
    parts = [estimate(rng.binomial(4, 0.7, n), rng.binomial(4, 0.6, n), 4) for n in (50, 100, 400)]
    pooled = pooled_estimate(parts)
    assert pooled.n == 550
    assert pooled.delta == pytest.approx(sum(p.n * p.delta for p in parts) / 550)
    assert pooled.se == pytest.approx(sum((p.n * p.se) ** 2 for p in parts) ** 0.5 / 550)
    assert 49 < pooled.df <= 547
    assert pooled_estimate(parts[:1]).lower() == pytest.approx(parts[0].lower())


def test_pooling_identical_domains_keeps_the_rule_of_three():
    parts = [estimate([4] * 60, [4] * 60, 4)] * 5
    assert pooled_estimate(parts).lower() == pytest.approx(-3 / 300)


def test_flips_expected_without_a_change():
    assert flip_chances(1, 1, 1) == (0.5, 0.5)
    assert flip_chances(4, 4, 8) == (0.0, 0.0)
    # 6 of 8 passed: the baseline side gets 4 of them, the candidate 2 (a tie is no pass).
    assert flip_chances(4, 4, 6)[0] == pytest.approx(6 / 28)


arms = st.integers(3, 40).flatmap(
    lambda n: st.tuples(
        *[st.lists(st.integers(0, 4), min_size=n, max_size=n)] * 2, st.permutations(range(n))
    )
)


@given(arms)
@settings(max_examples=150, deadline=None)
def test_order_of_tasks_changes_nothing_and_swapping_mirrors_everything(case):
    base, cand, order = case
    e = estimate(base, cand, 4)
    assert estimate([base[i] for i in order], [cand[i] for i in order], 4) == e
    mirrored = estimate(cand, base, 4)
    assert mirrored.delta == -e.delta
    assert mirrored.lower() == pytest.approx(-e.upper(), abs=1e-12)
    assert mirrored.p_worse == pytest.approx(e.p_better)
    assert e.lower() <= e.delta <= e.upper()


@given(arms, st.sampled_from([1]))
@settings(max_examples=100, deadline=None)
def test_single_rollouts_obey_the_same_laws(case, k):
    base, cand, order = ([x % 2 for x in case[0]], [x % 2 for x in case[1]], case[2])
    e = estimate(base, cand, k)
    assert estimate([base[i] for i in order], [cand[i] for i in order], k) == e
    mirrored = estimate(cand, base, k)
    assert mirrored.lower() == pytest.approx(-e.upper(), abs=1e-9)
    assert e.lower() <= e.delta <= e.upper()


@given(arms, st.floats(0.001, 0.2), st.floats(0.001, 0.2))
@settings(max_examples=100, deadline=None)
def test_a_stricter_level_never_narrows(case, one, two):
    e = estimate(case[0], case[1], 4)
    strict, loose = sorted([one, two])
    assert e.lower(strict) <= e.lower(loose) + 1e-12
    assert e.upper(strict) >= e.upper(loose) - 1e-12
