from __future__ import annotations

import pytest

from qualityhub.gates.selectors import (
    baseline_list,
    checkpoint_list,
    domain_latest_gate,
    eval_run_list,
    gate_get,
    gate_list,
    policy_list,
    rollups_of,
)
from qualityhub.gates.services import (
    baseline_set,
    checkpoint_create,
    eval_run_create,
    eval_run_seal,
    gate_decide,
    gate_start,
    policy_create,
)

pytestmark = pytest.mark.django_db
DOMAINS = 8


@pytest.fixture
def decided(team, ingest):
    """Two decided gates over eight domains; the second one has a worse candidate."""
    from qualityhub.registry.models import Domain

    domains = [
        Domain.objects.create(team=team, slug=f"d{number}", name=f"D{number}")
        for number in range(DOMAINS)
    ]
    ids = {row.slug: row.pk for row in domains}

    def sealed(name, passes):
        run = eval_run_create(checkpoint=checkpoint_create(team=team, name=name), name=name)
        rows = [
            {"domain": slug, "task": f"t{task}", "attempt": 0, "passed": task < passes}
            for slug in ids
            for task in range(25)
        ]
        ingest(run, rows, domains=ids)
        return eval_run_seal(run=run)

    base, good, bad = sealed("base", 15), sealed("good", 16), sealed("bad", 3)
    gates = []
    for candidate in (good, bad):
        gate, _ = gate_start(team=team, candidate=[candidate], baseline=[base])
        gates.append(gate_decide(gate.public_id))
    gate_start(team=team, candidate=[good], baseline=[base])
    baseline_set(team=team, kind="anchor", runs=[base])
    policy_create(team=team, text="[gate]\n", name="p")
    return gates


def test_the_newest_decided_gate_of_every_domain_is_one_query(
    team, decided, django_assert_num_queries
):
    with django_assert_num_queries(1):
        latest = domain_latest_gate(team)
        shown = [
            (row.domain.slug, row.verdict, row.reason, row.gate.verdict, row.gate.candidate.name)
            for row in latest.values()
        ]
        assert {row.gate.baseline.name for row in latest.values()} == {"base"}
    assert len(shown) == DOMAINS
    assert {name for *_, name in shown} == {"bad"}
    assert {verdict for _, verdict, *_ in shown} == {"block"}


def test_lists_join_what_they_show(team, decided, django_assert_num_queries):
    with django_assert_num_queries(3):
        shown = [
            (
                gate.team.slug,
                gate.candidate.name,
                gate.baseline.name,
                gate.verdict,
                gate.policy_row,
                [run.public_id for run in gate.candidate_runs.all()],
                [run.public_id for run in gate.baseline_runs.all()],
            )
            for gate in gate_list(team)
        ]
        assert len(shown) == 3
    with django_assert_num_queries(1):
        assert [row.team.slug for row in checkpoint_list(team)] == ["red-lab"] * 3
    with django_assert_num_queries(1):
        assert [row.checkpoint.team.slug for row in eval_run_list(team)] == ["red-lab"] * 3
    with django_assert_num_queries(1):
        assert [row.team.slug for row in policy_list(team)] == ["red-lab"]
    with django_assert_num_queries(2):
        [baseline] = baseline_list(team)
        assert (baseline.checkpoint.name, baseline.domain, len(baseline.runs.all())) == (
            "base",
            None,
            1,
        )


def test_a_list_of_gates_leaves_the_reports_in_the_database(team, decided):
    [*_, oldest] = gate_list(team)
    assert {"report", "inputs", "policy"} <= oldest.get_deferred_fields()


def test_one_gate_comes_with_report_and_runs(team, decided, django_assert_num_queries):
    with django_assert_num_queries(3):
        gate = gate_get(team, decided[0].public_id)
        assert gate.report["schema"] == "qualityhub.gate/1"
        assert len(gate.candidate_runs.all()) == len(gate.baseline_runs.all()) == 1
        assert gate.candidate.name == "good"


def test_nothing_of_it_is_another_teams(other_team, decided):
    assert domain_latest_gate(other_team) == {}
    assert gate_get(other_team, decided[0].public_id) is None
    for rows in (gate_list, checkpoint_list, eval_run_list, policy_list, baseline_list):
        assert not rows(other_team).exists()
        assert not rows([]).exists()


def test_rollups_are_one_query_per_run(decided, django_assert_num_queries):
    runs = list(decided[0].candidate_runs.all())
    with django_assert_num_queries(1):
        assert len(rollups_of(runs)) == DOMAINS
    with django_assert_num_queries(2):
        rollups_of(runs, cluster_attribute="repo")


def test_a_run_takes_its_rows_with_it_when_it_goes(decided, team):
    from qualityhub.gates.models import EvalRun, Rollout, Rollup

    for run in EvalRun.objects.filter(checkpoint__name="bad"):
        run.delete()
    assert Rollout.objects.count() == Rollup.objects.count() == 2 * DOMAINS * 25
