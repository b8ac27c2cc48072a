from __future__ import annotations

import json
import random

import pytest

from qualityhub.engine.errors import ConflictError, InvalidInputError
from qualityhub.gates.choices import GateStatus
from qualityhub.gates.models import Baseline, Gate, GateDomain
from qualityhub.gates.services import (
    baseline_set,
    checkpoint_create,
    eval_run_create,
    eval_run_seal,
    gate_decide,
    gate_record,
    gate_start,
    policy_create,
    policy_retire,
)
from qualityhub.platform.audit import AuditEvent
from qualityhub.platform.jobs import Job

pytestmark = pytest.mark.django_db


@pytest.fixture
def maths(team):
    from qualityhub.registry.models import Domain

    return Domain.objects.create(team=team, slug="maths", name="Maths")


@pytest.fixture
def rows_of():
    """``rows_of("code", 0.8, seed=1)`` are 4 rollouts of 60 tasks, passed at about that rate."""

    def make(domain, rate, *, seed, tasks=60, rollouts=4):
        chance = random.Random(seed)
        return [
            {
                "domain": domain,
                "task": f"t{task:03}",
                "task_digest": f"qh1:{domain}{task}",
                "attempt": attempt,
                "reward": float(chance.random() < rate),
                "latency_ms": chance.uniform(100, 900),
                "input_tokens": chance.randrange(1000),
                "cost": chance.random() / 50,
                "turns": chance.randrange(1, 9),
                "trace_ref": f"s3://{seed}/{task}/{attempt}",
                "attributes": {"repo": f"r{task % 25}"},
            }
            for task in range(tasks)
            for attempt in range(rollouts)
        ]

    return make


@pytest.fixture
def sealed(team, domain, maths, ingest):
    """``sealed("name", rows)`` is a sealed run of a checkpoint of its own."""

    def make(name, rows, *, checkpoint=None):
        checkpoint = checkpoint or checkpoint_create(team=team, name=name)
        run = eval_run_create(checkpoint=checkpoint, name=f"{name} run")
        ingest(run, rows, domains={"code": domain.pk, "maths": maths.pk})
        return eval_run_seal(run=run)

    return make


@pytest.fixture
def regressed(sealed, rows_of):
    """(baseline run, candidate run): maths got much worse, code stayed."""
    before = sealed("base", rows_of("code", 0.7, seed=1) + rows_of("maths", 0.8, seed=2))
    after = sealed("cand", rows_of("code", 0.7, seed=3) + rows_of("maths", 0.4, seed=4))
    return before, after


def test_a_gate_is_decided_once_and_kept_whole(
    team, regressed, sent_tasks, django_capture_on_commit_callbacks
):
    before, after = regressed
    with django_capture_on_commit_callbacks(execute=True):
        gate, job = gate_start(team=team, candidate=[after], baseline=[before], actor="ada")
    assert sent_tasks.sent == [("gate.decide", (gate.public_id,), "gate")]
    assert (gate.status, job.status) == (GateStatus.WAITING, "queued")

    decided = gate_decide(gate.public_id)
    assert (decided.status, decided.verdict) == (GateStatus.DECIDED, "block")
    assert decided.report["schema"] == "qualityhub.gate/1"
    assert decided.report["verdict"] == "block"
    assert decided.inputs["candidate"] == [{"run": after.public_id, "rows": 480, "conflicts": 0}]
    assert decided.record == gate_record(decided.report, decided.inputs)
    job.refresh_from_db()
    assert (job.status, job.result) == (
        "succeeded",
        {"gate": gate.public_id, "verdict": "block"},
    )
    by_domain = {row.domain.slug: row for row in GateDomain.objects.select_related("domain")}
    assert by_domain["maths"].verdict == "block"
    assert by_domain["maths"].delta < -0.2
    assert by_domain["code"].n_tasks == 60
    assert list(
        AuditEvent.objects.filter(object_id=gate.public_id)
        .order_by("id")
        .values_list("action", flat=True)
    ) == ["gate.started", "gate.decided"]


def test_deciding_again_changes_nothing(team, regressed):
    before, after = regressed
    gate, _ = gate_start(team=team, candidate=[after], baseline=[before])
    first = gate_decide(gate.public_id)
    again = gate_decide(gate.public_id)
    assert (again.decided_at, again.record) == (first.decided_at, first.record)
    assert GateDomain.objects.filter(gate=gate).count() == 2
    assert AuditEvent.objects.filter(action="gate.decided").count() == 1


def test_the_same_inputs_give_the_same_record(team, regressed):
    before, after = regressed
    records = set()
    for _ in range(2):
        gate, _ = gate_start(team=team, candidate=[after], baseline=[before])
        records.add(gate_decide(gate.public_id).record)
    assert len(records) == 1


@pytest.mark.parametrize(
    "table",
    ["", "[gate]\ncluster_attribute = 'repo'\nmin_tasks = 10\n"],
    ids=["default", "cluster"],
)
def test_files_and_hub_say_the_same(team, sealed, rows_of, tmp_path, table):
    """The command line, from files, and the hub, from rollups, give one document."""
    from qualityhub.engine.gate.compare import compare_files
    from qualityhub.gates.services import policy_parse

    sides = {
        "base": rows_of("code", 0.7, seed=1) + rows_of("maths", 0.8, seed=2),
        "cand": rows_of("code", 0.72, seed=3) + rows_of("maths", 0.6, seed=4, tasks=59),
    }
    random.Random(5).shuffle(sides["cand"])
    sides["cand"][7] |= {"validity": "invalid-infra", "reward": None}
    sides["cand"][9] |= {"validity": "model-failure"}
    for name, rows in sides.items():
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    policy, _ = policy_create(team=team, text=table or "[gate]\n", name="p")
    from_files = compare_files(
        [tmp_path / "cand"], [tmp_path / "base"], policy_parse(policy.text)
    ).as_json()
    gate, _ = gate_start(
        team=team,
        candidate=[sealed("cand", sides["cand"])],
        baseline=[sealed("base", sides["base"])],
        policy=policy,
    )
    from_hub = gate_decide(gate.public_id).report
    assert from_hub == json.loads(json.dumps(from_files))
    assert len(from_hub["domains"]) == 2


def test_several_runs_of_a_checkpoint_count_together(team, sealed, rows_of):
    first = sealed("cand", rows_of("code", 0.7, seed=1))
    second = sealed("more", rows_of("code", 0.7, seed=2), checkpoint=first.checkpoint)
    before = sealed("base", rows_of("code", 0.7, seed=3))
    gate, _ = gate_start(team=team, candidate=[first, second], baseline=[before])
    [domain] = gate_decide(gate.public_id).report["domains"]
    assert domain["n_rollouts"] == {"candidate": 480, "baseline": 240}


def test_rows_that_conflicted_are_noted(team, sealed, rows_of, domain):
    rows = rows_of("code", 0.7, seed=1)
    after = sealed("cand", [*rows, rows[0] | {"reward": 0.123}])
    before = sealed("base", rows_of("code", 0.7, seed=3))
    gate, _ = gate_start(team=team, candidate=[after], baseline=[before])
    notes = gate_decide(gate.public_id).report["notes"]
    assert any("1 rows of the candidate contradicted" in note for note in notes)


def test_without_a_named_baseline_the_last_promoted_counts(team, regressed, sealed, rows_of, maths):
    before, after = regressed
    with pytest.raises(ConflictError) as caught:
        gate_start(team=team, candidate=[after])
    assert caught.value.code == "gates.no_baseline"
    baseline_set(team=team, kind="last_promoted", runs=[before])
    gate, _ = gate_start(team=team, candidate=[after])
    assert gate.baseline == before.checkpoint
    assert gate_decide(gate.public_id).verdict == "block"


def test_a_domain_may_have_a_baseline_of_its_own(team, regressed, sealed, rows_of, maths):
    before, after = regressed
    low = sealed("low", rows_of("maths", 0.4, seed=9) + rows_of("code", 0.0, seed=9))
    baseline_set(team=team, kind="last_promoted", runs=[before])
    baseline_set(team=team, kind="last_promoted", runs=[low], domain=maths)
    gate, _ = gate_start(team=team, candidate=[after])
    decided = gate_decide(gate.public_id)
    means = {item["domain"]: item["baseline_mean"] for item in decided.report["domains"]}
    assert means["maths"] < 0.5
    assert means["code"] > 0.6
    assert decided.verdict != "block"
    assert decided.inputs["domain_baselines"]["maths"][0]["run"] == low.public_id


def test_a_new_baseline_replaces_and_keeps_the_old(team, regressed):
    before, after = regressed
    first = baseline_set(team=team, kind="anchor", runs=[before], actor="ada", reason="release 1")
    second = baseline_set(team=team, kind="anchor", runs=[after], actor="ada")
    first.refresh_from_db()
    assert (first.active, second.active) == (False, True)
    assert Baseline.objects.count() == 2
    event = AuditEvent.objects.filter(action="baseline.set").order_by("-id").first()
    assert event.before == {"checkpoint": before.checkpoint.public_id}
    assert event.after["checkpoint"] == after.checkpoint.public_id


def test_an_open_run_is_not_decided_on(team, regressed, checkpoint, domain):
    before, _ = regressed
    still_open = eval_run_create(checkpoint=checkpoint, name="open", domain=domain)
    with pytest.raises(ConflictError) as caught:
        gate_start(team=team, candidate=[still_open], baseline=[before])
    assert caught.value.code == "gates.run_open"
    assert "/seal" in caught.value.hint


def test_one_run_cannot_be_both_sides(team, regressed):
    before, _ = regressed
    with pytest.raises(InvalidInputError) as caught:
        gate_start(team=team, candidate=[before], baseline=[before])
    assert caught.value.code == "gates.same_run"


def test_one_side_is_one_checkpoint(team, regressed):
    before, after = regressed
    with pytest.raises(InvalidInputError) as caught:
        gate_start(team=team, candidate=[before, after], baseline=[before])
    assert caught.value.code == "gates.mixed_checkpoints"


def test_a_side_without_runs_is_refused(team, regressed):
    with pytest.raises(ConflictError) as caught:
        gate_start(team=team, candidate=[], baseline=[regressed[0]])
    assert caught.value.code == "gates.no_runs"


def test_what_breaks_in_our_own_parts_is_no_verdict(team, regressed, monkeypatch, caplog):
    from qualityhub.gates.services import gates

    def broken(*_, **__):
        raise RuntimeError("secret detail")

    before, after = regressed
    gate, job = gate_start(team=team, candidate=[after], baseline=[before])
    monkeypatch.setattr(gates, "decide", broken)
    decided = gate_decide(gate.public_id)
    job.refresh_from_db()
    assert (decided.status, decided.verdict, job.status) == (GateStatus.FAILED, "", "errored")
    assert decided.error["code"] == "machinery.unexpected"
    assert "secret" not in decided.error["message"]
    assert "secret detail" in caplog.text


def test_a_cancelled_job_ends_its_gate(team, regressed):
    from qualityhub.platform.jobs import JobStatus, job_finish

    before, after = regressed
    gate, job = gate_start(team=team, candidate=[after], baseline=[before])
    job_finish(job, JobStatus.CANCELLED)
    assert gate_decide(gate.public_id).error["code"] == "gate.cancelled"
    assert Job.objects.get(pk=job.pk).status == "cancelled"


def test_a_policy_decides_and_is_frozen_with_the_gate(team, sealed, rows_of):
    before = sealed("base", rows_of("code", 0.7, seed=1, tasks=30))
    after = sealed("cand", rows_of("code", 0.7, seed=1, tasks=30))
    policy, created = policy_create(
        team=team, text="[gate]\nname = 'wide'\n[gate.margins]\ndomain = 0.5\noverall = 0.5\n"
    )
    assert (policy.name, policy.version, created) == ("wide", 1, True)
    gate, _ = gate_start(team=team, candidate=[after], baseline=[before], policy=policy)
    decided = gate_decide(gate.public_id)
    assert decided.verdict == "promote"
    assert decided.report["policy"]["version"] == policy.digest
    policy_retire(policy=policy)
    with pytest.raises(ConflictError) as caught:
        gate_start(team=team, candidate=[after], baseline=[before], policy=policy)
    assert caught.value.code == "policy.retired"


def test_policy_versions_count_up_and_equal_text_makes_none(team):
    one, _ = policy_create(team=team, name="p", text="[gate]\nalpha = 0.05\n")
    same, created = policy_create(team=team, name="p", text="[gate]\nalpha = 0.05\n")
    two, _ = policy_create(team=team, name="p", text="[gate]\nalpha = 0.01\n")
    assert (same.pk, created) == (one.pk, False)
    assert (one.version, two.version) == (1, 2)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("[gate", "policy.not_toml"),
        ("[gate]\nalfa = 1\n", "input.unknown_key"),
        ("[gates]\n", "input.unknown_key"),
        ("gate = 1\n", "input.wrong_type"),
        ("admission = 1\n", "input.wrong_type"),
        ("[gate]\nalpha = 'x'\n", "input.wrong_type"),
        ("[admission]\neffort = 'great'\n", "input.wrong_type"),
        ("x" * 70_000, "policy.too_large"),
        ("[gate]\nname = 'a\0b'\n", "policy.not_toml"),
    ],
)
def test_a_policy_that_cannot_be_read_is_refused(team, text, code):
    from qualityhub.engine.errors import QualityHubError

    with pytest.raises(QualityHubError) as caught:
        policy_create(team=team, text=text, name="p")
    assert caught.value.code == code


def test_a_decided_gate_cannot_lack_its_decision(team, regressed):
    from django.db import IntegrityError

    before, after = regressed
    gate, _ = gate_start(team=team, candidate=[after], baseline=[before])
    with pytest.raises(IntegrityError, match="gates_gate_decided_is_whole"):
        Gate.objects.filter(pk=gate.pk).update(status=GateStatus.DECIDED)
