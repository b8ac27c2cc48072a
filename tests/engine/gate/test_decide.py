from __future__ import annotations

import json
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qualityhub.engine.gate.decide import decide
from qualityhub.engine.gate.policy import GatePolicy, gate_policy_from
from qualityhub.engine.gate.rollups import RollupTable, TaskRollup, merged
from qualityhub.engine.results.rows import RolloutRow


def arm(passes, k=4, digest="qh1:a", prefix="t", **kwargs):
    """One rollup per task from its number of passes."""
    return [
        TaskRollup(
            task=f"{prefix}{i}",
            n=k,
            passes=int(s),
            sum=float(s),
            sumsq=float(s),
            task_digest=digest,
            **kwargs,
        )
        for i, s in enumerate(passes)
    ]


def drawn(n, shift=0.0, k=4, seed=0):
    """Both sides of one domain; a share of the candidate's passes is taken away."""
    rng = np.random.default_rng(seed)
    p = rng.beta(0.6, 0.4, n)
    return rng.binomial(k, p), rng.binomial(k, np.clip(p + shift, 0, 1))


def domain(decision, name="d"):
    return next(item for item in decision.domains if item.domain == name)


def one(base, cand, policy=None, **kwargs):
    return decide(policy or GatePolicy(), {"d": base}, {"d": cand}, **kwargs)


# ------------------------------------------------------------------ verdicts of one domain


def test_identical_runs_of_enough_tasks_promote():
    decision = one(arm([4] * 200), arm([4] * 200))
    assert (decision.verdict, decision.exit_code) == ("promote", 0)
    assert domain(decision).numbers.lower == pytest.approx(-0.015)


def test_identical_runs_of_too_few_tasks_for_the_margin_do_not_promote():
    decision = one(arm([4] * 100), arm([4] * 100))
    assert (decision.verdict, decision.exit_code) == ("inconclusive", 3)
    assert domain(decision).cause == "imprecise"
    assert domain(decision).needed["tasks"] == 151
    settled = one(arm([4] * 151), arm([4] * 151))
    assert settled.verdict == "promote"


def test_a_clear_drop_blocks():
    base, cand = drawn(300, -0.15)
    decision = one(arm(base), arm(cand))
    report = domain(decision)
    assert (decision.verdict, decision.exit_code) == ("block", 1)
    assert report.numbers.upper < 0
    assert report.numbers.lower <= -0.02
    assert "got worse" in decision.reasons[0]
    assert report.needed == {"rollouts_per_task": None, "tasks": None, "reason": ""}


def test_a_real_drop_inside_the_margin_promotes_and_says_so():
    base, cand = arm([4] * 4000), arm([3] * 80 + [4] * 3920)
    decision = one(base, cand)
    assert decision.verdict == "promote"
    assert "a real drop, inside the margin" in domain(decision).reason


@pytest.mark.parametrize("n", [1, 2, 19])
@pytest.mark.parametrize("passes", [0, 4])
def test_fewer_than_twenty_tasks_never_promote_or_block(n, passes):
    decision = one(arm([4] * n), arm([passes] * n))
    assert decision.verdict == "inconclusive"
    assert domain(decision).cause == "few-tasks"
    assert domain(decision).needed["tasks"] == 20


def test_clusters_count_in_place_of_tasks():
    base = arm([4] * 100)
    cand = arm([0] * 100)
    for index, (before, after) in enumerate(zip(base, cand, strict=True)):
        before.cluster = after.cluster = f"repository-{index % 10}"
    report = domain(one(base, cand))
    assert (report.verdict, report.cause, report.n_clusters) == ("inconclusive", "few-tasks", 10)


def test_inconclusive_says_how_many_rollouts_would_settle_it():
    base, cand = drawn(200, 0.0, seed=3)
    report = domain(one(arm(base, cost=0.4, cost_n=4), arm(cand, cost=0.4, cost_n=4)))
    assert report.verdict == "inconclusive"
    needed = report.needed
    assert needed["rollouts_per_task"] > 4
    assert needed["extra_rollouts"] == 2 * 200 * (needed["rollouts_per_task"] - 4)
    assert needed["extra_cost"] == pytest.approx(0.1 * needed["extra_rollouts"])
    assert needed["promote_at_no_change"] > 0.85


# ------------------------------------------------------------------ what cannot be compared


@pytest.mark.parametrize("side", ["baseline", "candidate"])
def test_a_domain_that_one_side_lacks_is_incomparable(side):
    sides = {"baseline": {"d": arm([4] * 200)}, "candidate": {"d": arm([4] * 200)}}
    sides[side]["extra"] = arm([4] * 200)
    decision = decide(GatePolicy(), sides["baseline"], sides["candidate"])
    assert (decision.verdict, decision.exit_code) == ("incomparable", 4)
    assert domain(decision, "extra").cause == "missing"
    assert domain(decision, "d").verdict == "promote"


def test_incomparable_comes_before_block():
    base, cand = drawn(300, -0.2)
    decision = decide(GatePolicy(), {"a": arm(base), "b": arm([4] * 200)}, {"a": arm(cand)})
    assert domain(decision, "a").verdict == "block"
    assert decision.exit_code == 4


def test_an_advisory_domain_decides_nothing():
    base, cand = drawn(300, -0.2)
    policy = gate_policy_from(
        {"domains": {"a": {"tier": "advisory"}, "gone": {"tier": "advisory"}}}
    )
    decision = decide(
        policy,
        {"a": arm(base), "b": arm([4] * 200), "gone": arm([4] * 50)},
        {"a": arm(cand), "b": arm([4] * 200)},
    )
    assert domain(decision, "a").verdict == "block"
    assert domain(decision, "gone").verdict == "incomparable"
    assert decision.verdict == "promote"


def test_changed_tasks_are_left_out_with_the_reason_and_cost_coverage():
    base = arm([4] * 200)
    few = arm([4] * 200)
    for rollup in few[:5]:
        rollup.task_digest = "qh1:other"
    decision = one(base, few)
    report = domain(decision)
    assert decision.verdict == "promote"
    assert report.coverage == pytest.approx(195 / 200)
    assert report.excluded[0] == {
        "task": "t0",
        "reason": "the task changed between the runs (different digests)",
    }
    for rollup in few[:20]:
        rollup.task_digest = "qh1:other"
    report = domain(one(base, few))
    assert (report.verdict, report.cause) == ("incomparable", "coverage")
    assert "180 of 200 tasks" in report.reason


def test_tasks_of_one_side_alone_are_named():
    report = domain(one(arm([4] * 200), arm([4] * 198) + arm([4] * 3, prefix="new")))
    assert report.coverage == pytest.approx(198 / 203)
    assert {item["reason"] for item in report.excluded} == {
        "only the baseline has it",
        "only the candidate has it",
    }
    assert report.numbers.n_tasks == 198


def test_a_task_that_ran_under_two_digests_is_left_out():
    cand = arm([4] * 200)
    cand.append(TaskRollup(task="t0", n=1, passes=1, sum=1, sumsq=1, task_digest="qh1:b"))
    report = domain(one(arm([4] * 200), cand))
    assert report.excluded == (
        {"task": "t0", "reason": "ran under more than one task digest within a run"},
    )


def test_pairing_by_name_alone_is_said():
    decision = one(arm([4] * 200, digest=""), arm([4] * 200))
    assert decision.verdict == "promote"
    assert any("paired by name alone" in note for note in decision.notes)


def test_no_common_task_is_incomparable():
    report = domain(one(arm([4] * 50), arm([4] * 50, prefix="x")))
    assert (report.verdict, report.cause, report.numbers.delta) == (
        "incomparable",
        "coverage",
        None,
    )


def test_nothing_at_all_is_incomparable():
    decision = decide(GatePolicy(), {}, {})
    assert decision.verdict == "incomparable"
    json.dumps(decision.as_json(), allow_nan=False)


# ------------------------------------------------------------------ validity


def with_invalid(passes, invalid, validity="invalid-infra", k=4):
    rows = arm(passes, k)
    return rows + [
        TaskRollup(task=f"t{i}", validity=validity, n=count, task_digest="qh1:a")
        for i, count in enumerate(invalid)
        if count
    ]


def test_a_clear_difference_of_error_rates_is_incomparable():
    cand = with_invalid([4] * 200, [1] * 20)
    report = domain(one(arm([4] * 200), cand))
    assert (report.verdict, report.cause) == ("incomparable", "error-rates")
    assert report.validity["candidate_invalid"] == pytest.approx(20 * 0.2 / 200)


def test_one_infrastructure_error_in_a_small_run_is_no_difference_of_error_rates():
    base, cand = drawn(30, -0.6, seed=2)
    report = domain(one(arm(base), with_invalid(cand, [2])))
    assert report.verdict == "block"


@pytest.mark.parametrize("validity", ["invalid-infra", "invalid-grader"])
def test_a_verdict_that_depends_on_invalid_rollouts_is_inconclusive(validity):
    base = with_invalid([4] * 400, [1] * 12, validity)
    cand = with_invalid([4] * 400, [3] * 12, validity)
    report = domain(one(base, cand, gate_policy_from({"margins": {"domain": 0.008}})))
    assert (report.verdict, report.cause) == ("inconclusive", "validity")
    assert report.validity["verdict_if_left_out"] == "promote"
    assert report.validity["verdict_if_failed"] != "promote"


def test_invalid_rollouts_that_change_nothing_are_left_out_quietly():
    both = with_invalid([4] * 400, [1] * 3)
    report = domain(one(both, both))
    assert report.verdict == "promote"
    assert report.validity["candidate_rollouts"] == {
        "valid": 1600,
        "model_failure": 0,
        "invalid": 3,
    }


@pytest.mark.parametrize(("rule", "mean"), [("fail", 0.5), ("scored", 0.75), ("exclude", 1.0)])
def test_model_failures_count_as_the_policy_says(rule, mean):
    rows = arm([2] * 200, k=2) + [
        TaskRollup(
            task=f"t{i}",
            validity="model-failure",
            n=2,
            passes=1,
            sum=1.0,
            sumsq=1.0,
            task_digest="qh1:a",
        )
        for i in range(200)
    ]
    report = domain(one(rows, rows, gate_policy_from({"model_failure": rule})))
    assert report.numbers.candidate_mean == mean


def test_zero_as_a_failure_is_questioned_where_rewards_go_below_it():
    rows = [TaskRollup(task=f"t{i}", n=2, sum=-3.0, sumsq=5.0) for i in range(30)]
    rows.append(TaskRollup(task="t0", validity="model-failure", n=1))
    assert any("scored" in note for note in one(rows, rows).notes)


def test_scale_turns_any_reward_range_into_fractions():
    base = [TaskRollup(task=f"t{i}", n=2, sum=600.0 + i % 7, sumsq=180_500.0) for i in range(200)]
    cand = [TaskRollup(task=f"t{i}", n=2, sum=500.0 + i % 5, sumsq=125_500.0) for i in range(200)]
    report = domain(one(base, cand, gate_policy_from({"domains": {"d": {"scale": 500}}})))
    assert report.numbers.delta == pytest.approx(-0.1, abs=0.01)
    assert report.verdict == "block"


# ------------------------------------------------------------------ many domains


def many(count, n, shift_of, k=4, seed=0):
    base, cand = {}, {}
    for index in range(count):
        b, c = drawn(n, shift_of.get(index, 0.0), k, seed=1000 * seed + index)
        base[f"d{index:03d}"], cand[f"d{index:03d}"] = arm(b, k), arm(c, k)
    return base, cand


def test_what_is_merely_screened_among_many_domains_is_inconclusive_with_what_confirms_it():
    base, cand = many(60, 100, {})
    decision = decide(GatePolicy(), base, cand)
    screened = [item for item in decision.domains if item.cause == "screened"]
    assert screened, "with 60 domains some look worse by chance"
    for item in screened:
        assert item.verdict == "inconclusive"
        assert item.numbers.p_worse < 0.05 < item.p_adjusted
        assert item.needed["rollouts_per_task"] == 8
        assert "confirm with 8 fresh rollouts per task on both sides" in item.reason
    assert decision.verdict == "inconclusive"


def test_the_same_drop_alone_blocks_at_the_full_level():
    base, cand = many(60, 100, {})
    decision = decide(GatePolicy(), base, cand)
    item = next(i for i in decision.domains if i.cause == "screened" and i.numbers.lower <= -0.02)
    alone = decide(GatePolicy(), {item.domain: base[item.domain]}, {item.domain: cand[item.domain]})
    assert alone.verdict == "block"


def test_a_confirmed_domain_among_many_blocks_the_checkpoint():
    base, cand = many(40, 200, {7: -0.15})
    decision = decide(GatePolicy(), base, cand)
    assert decision.verdict == "block"
    assert decision.domains[0].domain == "d007"
    assert decision.reasons[0].startswith("d007: ")


def test_waiting_for_fresh_rollouts_no_domain_blocks_on_the_first_look():
    base, cand = many(10, 200, {7: -0.15})
    first = decide(gate_policy_from({"confirm": "fresh"}), base, cand)
    assert (domain(first, "d007").verdict, domain(first, "d007").cause) == (
        "inconclusive",
        "screened",
    )
    assert "block" not in {item.verdict for item in first.domains}
    assert domain(decide(GatePolicy(), base, cand), "d007").verdict == "block"


def test_fresh_rollouts_confirm_or_clear_what_was_flagged():
    base, cand = many(10, 200, {7: -0.15})
    policy = gate_policy_from({"confirm": "fresh"})
    again_base, again_cand = many(10, 200, {7: -0.15}, k=8, seed=0)
    only = {"d007": again_base["d007"]}, {"d007": again_cand["d007"]}
    confirmed = decide(policy, base, cand, fresh=only)
    report = domain(confirmed, "d007")
    assert (confirmed.verdict, report.verdict) == ("block", "block")
    assert report.n_rollouts == {"candidate": 200 * 12, "baseline": 200 * 12}
    assert "fresh_candidate" in confirmed.inputs
    same = {"d007": again_base["d007"]}, {"d007": again_base["d007"]}
    assert domain(decide(policy, base, cand, fresh=same), "d007").verdict != "block"


def test_a_small_drop_everywhere_blocks_through_the_mean():
    policy = gate_policy_from({"groups": {"all": ["d*"]}})
    base, cand = many(40, 400, dict.fromkeys(range(40), -0.03), k=8)
    decision = decide(policy, base, cand)
    assert decision.overall.verdict == "block"
    assert decision.groups[0].verdict == "block"
    assert decision.verdict == "block"


def test_a_group_takes_its_domains_and_leaves_its_budget_where_there_is_none():
    base, cand = many(6, 300, {})
    policy = gate_policy_from({"groups": {"g": ["d00[0-2]"], "lonely": ["d005"]}})
    decision = decide(policy, base, cand)
    by_name = {group.name: group for group in decision.groups}
    assert by_name["g"].domains == ("d000", "d001", "d002")
    assert by_name["g"].numbers.n_tasks == 900
    assert by_name["lonely"].verdict == domain(decision, "d005").verdict


def test_an_open_domain_holds_the_checkpoint_only_when_critical_or_below_the_floor():
    wide_base, wide_cand = drawn(30, 0.0, seed=5)
    base = {"open": arm(wide_base), **{f"s{i}": arm([4] * 500) for i in range(8)}}
    cand = {"open": arm(wide_cand), **{f"s{i}": arm([4] * 500) for i in range(8)}}
    decision = decide(gate_policy_from({"margins": {"floor": 0.3}}), base, cand)
    assert domain(decision, "open").cause == "imprecise"
    assert decision.verdict == "promote"
    assert any("Not settled on their own" in note and "open" in note for note in decision.notes)
    critical = gate_policy_from(
        {"margins": {"floor": 0.3}, "domains": {"open": {"tier": "critical"}}}
    )
    assert decide(critical, base, cand).verdict == "inconclusive"
    floor = decide(gate_policy_from({"margins": {"floor": 0.03}}), base, cand)
    assert floor.verdict == "inconclusive"
    assert "floor" in floor.reasons[0]


# ------------------------------------------------------------------ the document


def test_the_document_has_the_published_fields_and_is_plain_json():
    base, cand = many(3, 100, {1: -0.2})
    document = decide(gate_policy_from({"groups": {"g": ["d00[01]"]}}), base, cand).as_json()
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert document["schema"] == "qualityhub.gate/1"
    assert set(document) >= {"schema", "verdict", "policy", "overall", "groups", "domains", "notes"}
    published = {
        "domain", "verdict", "n_tasks", "n_rollouts", "baseline_mean", "candidate_mean", "delta", "lower", "upper",
        "p_worse", "margin", "needed", "coverage", "excluded", "flips", "metrics", "slices",
    }  # fmt: skip
    for item in document["domains"]:
        assert set(item) >= published
        assert set(item["needed"]) >= {"rollouts_per_task", "tasks", "reason"}
        assert set(item["n_rollouts"]) == {"candidate", "baseline"}
    assert document["inputs"]["candidate"]["rollouts"] == 1200
    assert gate_policy_from(document["policy"]).version == document["policy"]["version"]


def test_flips_come_with_what_chance_alone_would_do_and_the_worst_traces():
    base = arm([1] * 50 + [0] * 50, k=1)
    cand = arm([0] * 30 + [1] * 20 + [0] * 40 + [1] * 10, k=1)
    for rollup in cand[:30]:
        rollup.trace_ref = f"s3://traces/{rollup.task}"
    flips = domain(one(base, cand)).flips
    assert (flips["pass_to_fail"], flips["fail_to_pass"]) == (30, 10)
    assert flips["expected_pass_to_fail"] == flips["expected_fail_to_pass"] == 20
    assert len(flips["worst"]) == 10
    assert flips["worst"][0] == {
        "task": "t0",
        "baseline": 1.0,
        "candidate": 0.0,
        "delta": -1.0,
        "trace_ref": "s3://traces/t0",
    }


def test_metrics_are_ratios_of_geometric_means_with_bounds():
    base = arm([1] * 6, k=1)
    cand = arm([1] * 6, k=1)
    for rollup, tokens in zip(base, [12, 15, 9, 30, 22, 11], strict=True):
        rollup.cost, rollup.cost_n = tokens, 1
    for rollup, tokens in zip(cand, [13.2, 15.6, 9.9, 31.5, 26, 11.2], strict=True):
        rollup.cost, rollup.cost_n = tokens, 1
    cost = domain(one(base, cand)).metrics["cost"]
    assert cost["ratio"] == pytest.approx(1.08034882, abs=5e-9)
    assert cost["lower"] == pytest.approx(1.03356239, abs=5e-9)
    assert cost["upper"] == pytest.approx(1.12925314, abs=5e-9)


def rows_of(passes, k=4):
    return [
        RolloutRow(
            task=f"t{i}",
            attempt=a,
            domain="d",
            reward=0.1 + 0.8 * (a < s),
            latency_ms=100.0 + i / 3,
        )
        for i, s in enumerate(passes)
        for a in range(k)
    ]


def decided(base, cand):
    sides = []
    for rows in (base, cand):
        table = RollupTable()
        table.add_all(rows)
        sides.append(table.domains())
    return decide(GatePolicy(), *sides).as_json()


@given(st.integers(0, 10_000))
@settings(max_examples=15, deadline=None)
def test_the_order_of_rows_and_parts_changes_nothing(seed):
    base, cand = drawn(40, -0.1, seed=seed)
    base_rows, cand_rows = rows_of(base), rows_of(cand)
    expected = decided(base_rows, cand_rows)
    shuffled = random.Random(seed)
    shuffled.shuffle(base_rows)
    shuffled.shuffle(cand_rows)
    assert decided(base_rows, cand_rows) == expected
    parts = []
    for rows in (cand_rows[:50], cand_rows[50:]):
        table = RollupTable()
        table.add_all(rows)
        parts.append(table.domains())
    table = RollupTable()
    table.add_all(base_rows)
    assert decide(GatePolicy(), table.domains(), merged(*parts)).as_json() == expected


@given(st.integers(0, 10_000), st.sampled_from([1, 4]), st.floats(-0.2, 0.2))
@settings(max_examples=40, deadline=None)
def test_swapping_the_sides_mirrors_the_estimate(seed, k, shift):
    base, cand = drawn(40, shift, k, seed=seed)
    there, back = domain(one(arm(base, k), arm(cand, k))), domain(one(arm(cand, k), arm(base, k)))
    assert back.numbers.delta == -there.numbers.delta
    assert back.numbers.lower == pytest.approx(-there.numbers.upper, abs=1e-9)
    assert not (there.verdict == back.verdict == "block")
    assert there.flips["pass_to_fail"] == back.flips["fail_to_pass"]


@given(st.integers(0, 10_000), st.floats(-0.2, 0.2), st.floats(0.005, 0.3), st.floats(0.005, 0.3))
@settings(max_examples=40, deadline=None)
def test_a_wider_margin_never_takes_a_promotion_back(seed, shift, one_margin, other_margin):
    base, cand = drawn(60, shift, seed=seed)
    narrow, wide = sorted([one_margin, other_margin])
    verdicts = [
        domain(one(arm(base), arm(cand), gate_policy_from({"margins": {"domain": margin}}))).verdict
        for margin in (narrow, wide)
    ]
    if verdicts[0] == "promote":
        assert verdicts[1] == "promote"
    if verdicts[1] == "block":
        assert verdicts[0] == "block"


def test_labels_of_tasks_and_domains_change_no_verdict():
    base, cand = drawn(100, -0.1)
    plain = one(arm(base), arm(cand))
    other = decide(GatePolicy(), {"ü": arm(base, prefix="§")}, {"ü": arm(cand, prefix="§")})
    assert domain(plain).numbers == domain(other, "ü").numbers
    assert plain.verdict == other.verdict


def test_inputs_are_named_by_digests_that_follow_the_content():
    base, cand = drawn(50)
    first, again = one(arm(base), arm(cand)), one(arm(base)[::-1], arm(cand)[::-1])
    changed = arm(cand)
    changed[0].n += 1
    assert first.inputs == again.inputs
    assert first.inputs["candidate"] != one(arm(base), changed).inputs["candidate"]
    assert first.inputs["baseline"] == one(arm(base), changed).inputs["baseline"]
    assert set(first.software) == {"qualityhub", "python", "numpy", "scipy"}


def test_rollups_of_different_tasks_do_not_merge():
    with pytest.raises(ValueError, match="do not merge"):
        TaskRollup("a").merge(TaskRollup("b"))


@given(
    st.one_of(st.none(), st.floats(-10, 10)),
    st.one_of(st.none(), st.booleans()),
)
def test_a_rollup_counts_a_row_as_the_row_sees_itself(reward, passed):
    row = RolloutRow(task="a", attempt=0, reward=reward, passed=passed)
    rollup = TaskRollup("a")
    rollup.add(row)
    assert (rollup.n, rollup.passes, rollup.sum, rollup.sumsq) == (
        1,
        row.solved,
        row.value,
        row.value * row.value,
    )
