from __future__ import annotations

import random

import pytest

from qualityhub.engine.errors import ConflictError, InvalidInputError
from qualityhub.engine.results.rows import RowError
from qualityhub.gates.models import Rollout, Rollup, TaskKey
from qualityhub.gates.services import eval_run_seal, rollups_verify

pytestmark = pytest.mark.django_db


def test_rows_are_stored_with_all_they_say(run, ingest):
    result = ingest(
        run,
        [
            {
                "task": "t/1",
                "task_digest": "qh1:aa",
                "attempt": 3,
                "reward": 0.25,
                "passed": True,
                "validity": "model-failure",
                "latency_ms": 12.5,
                "input_tokens": 2**50,
                "output_tokens": 7,
                "cost": 0.125,
                "turns": 4,
                "context_tokens": 99,
                "trace_ref": "s3://a\tb\\c",
                "attributes": {"repo": "a\\b\n", "n": [1, {"é": None}]},
            }
        ],
    )
    assert (result.received, result.inserted) == (1, 1)
    row = Rollout.objects.select_related("task_key").get(run=run)
    assert (row.task_key.task, row.task_key.digest, row.task_key.domain_id) == (
        "t/1",
        "qh1:aa",
        run.domain_id,
    )
    assert (row.attempt, row.reward, row.passed, row.validity) == (3, 0.25, True, 1)
    assert (row.latency_ms, row.input_tokens, row.output_tokens) == (12.5, 2**50, 7)
    assert (row.cost, row.turns, row.context_tokens) == (0.125, 4, 99)
    assert row.trace_ref == "s3://a\tb\\c"
    assert row.attributes == {"repo": "a\\b\n", "n": [1, {"é": None}]}


def test_a_reward_comes_from_passed_and_the_other_way_round(run, ingest):
    ingest(
        run,
        [
            {"task": "a", "attempt": 0, "passed": True},
            {"task": "b", "attempt": 0, "reward": 1},
            {"task": "c", "attempt": 0, "reward": 0.99},
            {"task": "d", "attempt": 0, "validity": "invalid-infra"},
        ],
    )
    rows = Rollout.objects.filter(run=run).order_by("task_key__task")
    assert [(row.reward, row.passed) for row in rows] == [
        (1.0, True),
        (1.0, True),
        (0.99, False),
        (0.0, False),
    ]


def test_the_same_content_again_changes_nothing(run, ingest):
    rows = [{"task": f"t{i}", "attempt": 0, "reward": i / 10} for i in range(10)]
    ingest(run, rows)
    before = list(Rollup.objects.filter(run=run).values())
    result = ingest(run, rows)
    assert (result.received, result.inserted, result.duplicates) == (10, 0, 10)
    assert result.conflicts_total == 0
    assert list(Rollup.objects.filter(run=run).values()) == before
    run.refresh_from_db()
    assert (run.rows, run.duplicates, run.conflicts) == (10, 10, 0)


def test_equal_content_may_be_written_differently(run, ingest, domain):
    ingest(run, [{"task": "t", "attempt": 0, "reward": 1, "attributes": {"a": 1, "b": 2}}])
    again = {
        "attributes": {"b": 2, "a": 1},
        "reward": 1.0,
        "passed": True,
        "domain": domain.slug,
        "attempt": 0,
        "task": "t",
        "validity": "valid",
    }
    assert ingest(run, [again]).duplicates == 1


def test_other_content_is_a_counted_conflict_and_the_first_wins(run, ingest):
    ingest(run, [{"task": "t", "attempt": 0, "reward": 0.5}])
    result = ingest(
        run, [{"task": "u", "attempt": 0, "reward": 1}, {"task": "t", "attempt": 0, "reward": 0.6}]
    )
    assert (result.inserted, result.duplicates, result.conflicts_total) == (1, 0, 1)
    [conflict] = result.as_json()["conflicts"]
    assert conflict == {
        "domain": "code",
        "task": "t",
        "attempt": 0,
        "line": 2,
        "reason": "content",
    }
    assert Rollout.objects.get(run=run, task_key__task="t").reward == 0.5


def test_repeats_inside_one_request_are_told_apart(run, ingest):
    result = ingest(
        run,
        [
            {"task": "t", "attempt": 0, "reward": 0.5},
            {"task": "t", "attempt": 0, "reward": 0.5},
            {"task": "t", "attempt": 0, "reward": 0.7},
            {"task": "t", "attempt": 1, "reward": 0.7},
        ],
    )
    assert (result.received, result.inserted) == (4, 2)
    assert (result.duplicates, result.conflicts_total) == (1, 1)
    assert result.conflicts[0].line == 3


def test_only_the_first_twenty_conflicts_are_listed(run, ingest):
    ingest(run, [{"task": f"t{i}", "attempt": 0, "reward": 0} for i in range(30)])
    result = ingest(run, [{"task": f"t{i}", "attempt": 0, "reward": 1} for i in range(30)])
    assert result.conflicts_total == 30
    assert [item.line for item in result.conflicts] == list(range(1, 21))


def test_a_task_keeps_one_digest_within_a_run(run, ingest):
    first = ingest(
        run,
        [
            {"task": "t", "attempt": 0, "reward": 1, "task_digest": "qh1:a"},
            {"task": "t", "attempt": 1, "reward": 1, "task_digest": "qh1:b"},
        ],
    )
    later = ingest(run, [{"task": "t", "attempt": 2, "reward": 1, "task_digest": "qh1:b"}])
    assert (first.inserted, first.conflicts[0].reason) == (1, "task_digest")
    assert (later.inserted, later.conflicts_total) == (0, 1)
    assert later.conflicts[0].reason == "task_digest"


def test_another_run_may_use_another_digest(run, checkpoint, domain, ingest):
    from qualityhub.gates.services import eval_run_create

    other = eval_run_create(checkpoint=checkpoint, name="regrade", domain=domain)
    ingest(run, [{"task": "t", "attempt": 0, "reward": 1, "task_digest": "qh1:a"}])
    assert (
        ingest(other, [{"task": "t", "attempt": 0, "reward": 1, "task_digest": "qh1:b"}]).inserted
        == 1
    )
    assert TaskKey.objects.filter(task="t").count() == 2


def test_a_bad_row_in_the_middle_stores_nothing_and_names_its_line(run, ingest):
    rows = [{"task": f"t{i}", "attempt": 0, "reward": 1} for i in range(5)]
    with pytest.raises(RowError) as caught:
        ingest(run, [*rows, '{"task": "x", "attempt": 0, reward: 1}', *rows])
    assert (caught.value.code, caught.value.line) == ("results.bad_row", 6)
    assert not Rollout.objects.exists()
    assert not Rollup.objects.exists()
    assert not TaskKey.objects.exists()
    run.refresh_from_db()
    assert run.rows == 0


def test_an_unknown_domain_is_refused_with_a_guess(run, ingest):
    with pytest.raises(RowError) as caught:
        ingest(run, ["", {"domain": "cod", "task": "t", "attempt": 0, "reward": 1}])
    assert (caught.value.code, caught.value.line) == ("results.unknown_domain", 2)
    assert "code" in caught.value.hint
    assert not Rollout.objects.exists()


def test_a_missing_domain_is_made_where_that_is_asked_for(run, ingest, team):
    from qualityhub.registry.models import Domain

    def create(slug):
        return Domain.objects.create(team=team, slug=slug, name=slug).pk

    rows = [{"domain": "maths", "task": f"t{i}", "attempt": 0, "reward": 1} for i in range(3)]
    assert ingest(run, rows, domain_create=create).inserted == 3
    assert TaskKey.objects.filter(domain__slug="maths").count() == 3


def test_a_row_without_any_domain_is_refused(checkpoint, ingest):
    from qualityhub.gates.services import eval_run_create

    run = eval_run_create(checkpoint=checkpoint, name="mixed")
    with pytest.raises(RowError) as caught:
        ingest(run, [{"task": "t", "attempt": 0, "reward": 1}])
    assert caught.value.code == "results.no_domain"


def test_a_name_too_long_for_an_index_is_refused(run, ingest):
    with pytest.raises(RowError) as caught:
        ingest(run, [{"task": "\U0001f600" * 512, "attempt": 0, "reward": 1}])
    assert caught.value.code == "results.too_large"


@pytest.mark.parametrize("rows", [[], ["", "  "]])
def test_an_empty_body_is_refused(run, ingest, rows):
    with pytest.raises(InvalidInputError) as caught:
        ingest(run, rows)
    assert caught.value.code == "results.empty"


def test_a_sealed_run_takes_no_rows(run, ingest):
    ingest(run, [{"task": "t", "attempt": 0, "reward": 1}])
    eval_run_seal(run=run)
    with pytest.raises(ConflictError) as caught:
        ingest(run, [{"task": "t", "attempt": 1, "reward": 1}])
    assert caught.value.code == "runs.sealed"
    assert Rollout.objects.filter(run=run).count() == 1


def test_a_run_without_rows_cannot_be_sealed(run):
    with pytest.raises(ConflictError) as caught:
        eval_run_seal(run=run)
    assert caught.value.code == "runs.empty"


def test_sums_equal_their_recomputation_after_any_mix_of_requests(run, ingest, team):
    from qualityhub.registry.models import Domain

    chance = random.Random(7)
    other = Domain.objects.create(team=team, slug="maths", name="Maths")
    domains = {"code": run.domain_id, "maths": other.pk}
    validities = ["valid", "valid", "valid", "model-failure", "invalid-infra", "invalid-grader"]
    for _ in range(6):
        rows = []
        for _ in range(150):
            row = {
                "domain": chance.choice(["code", "maths"]),
                "task": f"t{chance.randrange(12)}",
                "attempt": chance.randrange(8),
                "reward": chance.choice([0, 1, chance.uniform(-5, 5)]),
                "validity": chance.choice(validities),
            }
            if chance.random() < 0.7:
                row |= {"latency_ms": chance.random() * 1e4, "cost": chance.random() / 100}
            if chance.random() < 0.7:
                row |= {"input_tokens": chance.randrange(10**6), "output_tokens": 5, "turns": 2}
            if chance.random() < 0.5:
                row["trace_ref"] = f"s3://{chance.randrange(1000)}"
            rows.append(row)
        ingest(run, rows, domains=domains)
    run.refresh_from_db()
    assert run.rows > 100
    assert run.conflicts > 100
    assert rollups_verify(run) == []


def test_the_verification_finds_what_was_tampered_with(run, ingest):
    ingest(run, [{"task": f"t{i}", "attempt": 0, "reward": 1} for i in range(3)])
    key = TaskKey.objects.get(task="t1")
    Rollup.objects.filter(run=run, task_key=key).update(passes=0)
    Rollout.objects.filter(run=run, task_key__task="t2").delete()
    found = {(item.task, item.column) for item in rollups_verify(run)}
    assert ("t1", "passes") in found
    assert ("t2", "n") in found
    assert ("", "rows") in found
    assert not any(task == "t0" for task, _ in found)


def test_rollups_equal_the_engines_own(run, ingest):
    """The hub's sums and those that the command line makes from the same rows are the same."""
    from qualityhub.engine.gate.rollups import RollupTable
    from qualityhub.engine.results.rows import RolloutRow
    from qualityhub.gates.selectors import rollups_of

    chance = random.Random(3)
    rows = [
        {
            "task": f"t{i % 20}",
            "task_digest": f"qh1:{i % 20}",
            "attempt": i // 20,
            "reward": chance.choice([0.0, 0.5, 1.0]),
            "validity": chance.choice(["valid", "invalid-infra"]),
            "latency_ms": float(i),
            "input_tokens": i,
            "output_tokens": None if i % 3 else i,
            "cost": 0.25,
            "turns": 3,
            "trace_ref": f"s3://{i}",
            "attributes": {"repo": f"r{i % 4}"},
        }
        for i in range(160)
    ]
    ingest(run, rows)
    table = RollupTable(run.domain.slug, "repo")
    table.add_all(RolloutRow(**row) for row in rows)
    ours = rollups_of([run], cluster_attribute="repo")

    def key(item):
        return (item.task, item.validity)

    assert sorted(ours["code"], key=key) == sorted(table.domains()["code"], key=key)
