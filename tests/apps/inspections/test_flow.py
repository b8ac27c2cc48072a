from __future__ import annotations

import json
import random

import pytest

from qualityhub.engine.errors import ConflictError, InvalidInputError
from qualityhub.inspections import claims, draining, rounds
from qualityhub.inspections.models import (
    Batch,
    Finding,
    Inspection,
    InspectionTrial,
    TrialRecord,
)
from qualityhub.inspections.services import inspection_cancel
from qualityhub.inspections.subjects import derive_again
from qualityhub.platform.audit import AuditEvent

pytestmark = pytest.mark.django_db


def plain(report):
    from qualityhub.inspections.verdicts import finite

    return json.loads(json.dumps(finite(report.as_json())))


def test_inspection_runs_to_a_verdict(upload, judge, script):
    script.wrong = {"T/1"}
    version = upload(4)
    inspection = judge(version)
    assert (inspection.status, inspection.verdict) == ("finished", "partial")
    assert inspection.job.status == "succeeded"
    assert inspection.job.result["verdict"] == "partial"
    assert inspection.finding_counts == {"error": 1}
    assert inspection.task_counts == {"admitted": 3, "quarantined": 1}
    finding = Finding.objects.get()
    assert (finding.code, finding.task, finding.severity) == ("VER001", "T/1", "error")
    version.refresh_from_db()
    assert version.admission == "partial"
    tasks = dict(version.tasks.values_list("task_id", "admitted"))
    assert tasks == {"T/0": True, "T/1": False, "T/2": True, "T/3": True}
    assert AuditEvent.objects.filter(action="admission.changed").count() == 1


def test_no_trial_is_recorded_twice(upload, judge, script):
    inspection = judge(upload(3))
    assert len(script.ran) == len(set(script.ran)) == TrialRecord.objects.count()
    assert inspection.trials_done == inspection.trials_total == TrialRecord.objects.count()
    assert InspectionTrial.objects.filter(cached=True).count() == 0


def test_unchanged_version_is_judged_again_without_running(upload, judge, script):
    version = upload(3)
    first = judge(version)
    script.ran.clear()
    second = judge(version)
    assert script.ran == []
    assert second.trials_cached == second.trials_total == first.trials_total
    assert not Batch.objects.filter(inspection=second, kind="trials").exists()
    assert second.report["findings"] == first.report["findings"]


def test_changed_task_alone_runs_again(upload, judge, script):
    judge(upload(3))
    before = len(script.ran)
    script.ran.clear()
    judge(upload(4))
    assert len(script.ran) == before // 3  # the new task's trials, and none of the old three


def test_raised_generation_runs_everything_again(upload, judge, script):
    version = upload(2)
    judge(version)
    script.ran.clear()
    again = judge(version, generation=1)
    assert len(script.ran) == again.trials_total
    assert again.trials_cached == 0


def test_another_team_does_not_share_results(upload, judge, script, other_team):
    from qualityhub.registry.models import Domain, Environment

    judge(upload(2))
    before = len(script.ran)
    domain = Domain.objects.create(team=other_team, slug="code", name="Code")
    theirs = Environment.objects.create(team=other_team, domain=domain, slug="sums", name="Sums")
    judge(upload(2, environment=theirs))
    assert len(script.ran) == 2 * before


def test_report_derived_again_from_rows_is_the_stored_one(upload, judge, script):
    for seed in range(6):
        chance = random.Random(seed)
        script.wrong = {f"T/{n}" for n in range(5) if chance.random() < 0.4}
        inspection = judge(upload(1 + seed, shift=seed))
        assert plain(derive_again(inspection)) == inspection.report


def test_failure_of_our_own_is_tried_again_then_said(upload, start, finish, script):
    inspection = start(upload(2))
    key = {}

    def fail_first(trial):
        if not key:
            key["it"] = trial.key
            script.broken[trial.key] = 1

    script.during = fail_first
    ended = finish(inspection)
    assert script.ran.count(key["it"]) == 2
    assert ended.verdict == "admitted"
    assert InspectionTrial.objects.filter(failure__isnull=False).count() == 0


def test_lasting_failure_of_our_own_fails_closed_and_is_kept_from_others(upload, judge, script):
    version = upload(2)

    def always(trial):
        if trial.asks[0].task == "T/0":
            script.broken[trial.key] = 1

    script.during = always
    ended = judge(version)
    assert ended.verdict == "error"
    version.refresh_from_db()
    assert version.admission == "error"
    assert version.tasks.get(task_id="T/0").admitted is None
    assert version.tasks.get(task_id="T/1").admitted is True
    failures = InspectionTrial.objects.filter(failure__isnull=False)
    assert failures.count() > 0
    assert not TrialRecord.objects.filter(key__in=failures.values("key")).exists()
    script.during = None
    assert judge(version).verdict == "admitted"


def test_batch_that_always_breaks_ends_the_inspection(upload, start, monkeypatch, bench):
    version = upload(1)
    inspection = start(version)

    def broken(*args):
        raise OSError(28, "no space left", "/srv/of/a/host/blob")

    monkeypatch.setattr(rounds, "advance_run", broken)
    for _ in range(claims.ATTEMPTS):
        Batch.objects.update(ready_at="2020-01-01T00:00:00Z")
        draining.drain(bench, 5)
    draining.reap()
    inspection.refresh_from_db()
    assert (inspection.status, inspection.error_code) == ("errored", "inspection.given_up")
    batch = Batch.objects.exclude(last_error="").get()
    inspection.job.refresh_from_db()
    for told in (inspection.error_message, inspection.job.error_message):
        assert f"Batch {batch.pk} failed again and again" in told
        assert not any(word in told for word in ("no space left", "/srv", "Error"))
    assert "/srv/of/a/host/blob" in batch.last_error
    version.refresh_from_db()
    assert version.admission == "error"
    assert inspection.job.__class__.objects.get(pk=inspection.job_id).status == "errored"


def test_error_of_ours_takes_no_admission_away(upload, judge, start):
    from qualityhub.inspections.services import inspection_error

    version = upload(1)
    judge(version)
    again = start(version, generation=1)
    assert inspection_error(again.pk, code="inspection.given_up", message="x")
    version.refresh_from_db()
    assert version.admission == "admitted"
    assert not inspection_error(again.pk, code="inspection.given_up", message="x")


def test_cancelled_inspection_runs_nothing_more(upload, start, finish, script):
    inspection = start(upload(1))
    inspection_cancel(inspection, actor="owner@example.org")
    ended = finish(inspection)
    assert (ended.status, ended.job.status, script.ran) == ("cancelled", "cancelled", [])
    with pytest.raises(ConflictError):
        inspection_cancel(inspection, actor="owner@example.org")


def test_waiting_inspection_is_not_queued_twice(upload, start):
    version = upload(1)
    first = start(version)
    assert start(version).pk == first.pk
    assert start(version, generation=1).pk != first.pk
    assert Inspection.objects.count() == 2


def test_own_policy_or_less_effort_only_informs(upload, judge, script):
    version = upload(1)
    script.wrong = {"T/0"}
    mild = judge(version, policy={"severity": {"VER001": "info"}})
    assert (mild.verdict, mild.decides) == ("admitted", False)
    quick = judge(version, effort="quick")
    assert quick.decides is False
    version.refresh_from_db()
    assert version.admission is None
    assert version.tasks.get().admitted is None
    judge(version)
    version.refresh_from_db()
    assert version.admission == "rejected"


def test_older_inspection_does_not_undo_a_newer_one(upload, start, finish, script):
    version = upload(1)
    older = start(version)
    newer = start(version, generation=1)
    # The older one is held back until the newer one has ended.
    Batch.objects.filter(inspection=older).update(ready_at="2100-01-01T00:00:00Z")
    script.wrong = {"T/0"}
    assert finish(newer).verdict == "rejected"
    script.wrong = set()
    Batch.objects.filter(inspection=older).update(ready_at="2020-01-01T00:00:00Z")
    assert finish(older).verdict == "admitted"
    version.refresh_from_db()
    assert version.admission == "rejected"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"policy": {"efort": "quick"}}, "input.unknown_key"),
        ({"policy": {"effort": 3}}, "input.wrong_type"),
        ({"policy": {"ignore": ["XYZ9"]}}, "rule.unknown"),
        ({"effort": "huge"}, "input.bad_effort"),
    ],
)
def test_bad_policy_starts_nothing(version, start, fields, code):
    with pytest.raises(InvalidInputError) as caught:
        start(version, **fields)
    assert caught.value.code == code
    assert Inspection.objects.count() == 0


def test_damaged_result_is_not_trusted(upload, judge, script):
    version = upload(1)
    judge(version)
    record = TrialRecord.objects.first()
    TrialRecord.objects.filter(pk=record.pk).update(seal="0" * 64)
    with pytest.raises(ValueError, match="damaged"):
        derive_again(Inspection.objects.get())
    script.ran.clear()
    judge(version)
    assert script.ran == [record.key]
    record.refresh_from_db()
    assert record.seal != "0" * 64
