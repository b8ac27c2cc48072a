from __future__ import annotations

import numpy as np
import pytest

from qualityhub.engine.gate.needed import needed_to_decide, rollouts_for, tasks_for
from qualityhub.engine.gate.statistics import Estimate, Means, paired_estimate


def estimate(n=200, delta=0.0, *, omega2=0.005, sigma_w2=0.24, k=4, run_noise=0.0, **kwargs):
    se = ((omega2 + sigma_w2 / k) / n + 2 * run_noise**2) ** 0.5
    return Estimate(
        n=n,
        units=n,
        delta=delta,
        se=se,
        df=n - 1,
        moved=n // 2,
        run_noise=run_noise,
        omega2=omega2,
        sigma_w2=sigma_w2,
        **kwargs,
    )


def test_vector_of_the_planning_example():
    target = 0.02 / (1.6448536269514722 + 1.2815515655446004)
    assert rollouts_for(200, 0.24, 0.005, target) == pytest.approx(55.279, abs=5e-4)
    assert needed_to_decide(estimate(), margin=0.02, rollouts=4).rollouts_per_task == 56


def test_more_tasks_where_more_rollouts_cannot_help():
    needed = needed_to_decide(estimate(omega2=0.05), margin=0.02, rollouts=4)
    assert needed.rollouts_per_task is None
    assert needed.tasks > 200
    target = 0.02 / 2.9264
    assert needed.tasks == pytest.approx(tasks_for(4, 0.24, 0.05, target), rel=1e-3)
    assert "cannot settle it" in needed.reason


def test_a_margin_below_the_run_noise_is_said():
    needed = needed_to_decide(estimate(run_noise=0.01), margin=0.02, rollouts=4)
    assert needed.rollouts_per_task is None
    assert "run noise" in needed.reason


def test_an_estimate_between_zero_and_the_margin_needs_more_than_no_change_would():
    between = estimate(n=1500, delta=-0.0098)
    assert between.lower() < -0.02
    assert between.upper() > 0
    assert rollouts_for(1500, 0.24, 0.005, 0.02 / 2.9264) < 4
    assert needed_to_decide(between, margin=0.02, rollouts=4).rollouts_per_task == 19


def test_single_rollouts_are_planned_with_what_is_known():
    rng = np.random.default_rng(0)
    single = [
        Means.from_sums(np.ones(300), x, x) for x in rng.binomial(1, 0.6, (2, 300)).astype(float)
    ]
    e = paired_estimate(*single)
    assert e.sigma_w2 is None
    needed = needed_to_decide(e, margin=0.02, rollouts=1)
    assert needed.rollouts_per_task > 1
    assert "one rollout per task" in needed.reason


def test_what_is_recommended_settles_it_at_no_change():
    rng = np.random.default_rng(4)
    p = rng.beta(0.6, 0.4, 300)

    def measured(k):
        sides = [rng.binomial(k, p).astype(float) for _ in range(2)]
        n = np.full(300, float(k))
        return paired_estimate(*[Means.from_sums(n, s, s) for s in sides])

    k = needed_to_decide(measured(4), margin=0.03, rollouts=4).rollouts_per_task
    promoted = sum(measured(k).lower() > -0.03 for _ in range(200))
    assert promoted >= 160
