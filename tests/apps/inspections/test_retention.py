"""What is let go of is what nothing refers to; the rest stays, and what is gone runs again."""

from __future__ import annotations

import json
import os
import time
from datetime import timedelta

import pytest
from django.db import connection
from django.db.models.functions import Now

from qualityhub.engine.reports.reading import trials_of
from qualityhub.inspections import retention, rounds
from qualityhub.inspections.models import (
    Batch,
    Finding,
    Inspection,
    InspectionTrial,
    TrialRecord,
)
from qualityhub.inspections.results import evidence_store
from qualityhub.inspections.retention import trials_let_go
from qualityhub.inspections.services import inspection_cancel

pytestmark = pytest.mark.django_db
MANY_DAYS = timedelta(days=400)


@pytest.fixture(autouse=True)
def keep_one(settings):
    settings.QH_TRIALS_KEEP_DAYS = 30
    settings.QH_TRIALS_KEEP_INSPECTIONS = 1


@pytest.fixture
def age():
    """``age(inspection)`` makes it, what it ran and the outputs of that old."""

    def make(*inspections):
        for inspection in inspections:
            Inspection.objects.filter(pk=inspection.pk).update(created_at=Now() - MANY_DAYS)
            TrialRecord.objects.filter(batch__inspection=inspection).update(
                created_at=Now() - MANY_DAYS
            )
        then = time.time() - MANY_DAYS.total_seconds()
        for path in evidence_store().root.rglob("*.zst"):
            os.utime(path, (then, then))

    return make


def keys_of(inspection):
    return set(InspectionTrial.objects.filter(inspection=inspection).values_list("key", flat=True))


def with_outputs(inspection):
    """Give every result of an inspection an output of its own."""
    store = evidence_store()
    for record in TrialRecord.objects.filter(batch__inspection=inspection):
        record.evidence = store.put(record.key.encode())
        record.save()
    return inspection


def test_the_trials_behind_an_old_verdict_go_and_its_report_stays(upload, judge, script, age):
    version = upload(3)
    old = with_outputs(judge(version))
    new = with_outputs(judge(version, generation=1))
    age(old, new)
    counts = len(keys_of(old)), len(keys_of(new))
    done = trials_let_go()
    assert (done["inspections"], done["results"], done["blobs"]) == (1, counts[0], counts[0])
    assert done["blob_bytes"] > 0
    assert keys_of(old) == set()
    assert len(keys_of(new)) == TrialRecord.objects.count() == counts[1]
    assert len(list(evidence_store().iterate())) == counts[1]
    before = old.report
    old.refresh_from_db()
    assert old.report == before
    assert old.trials_let_go_at is not None
    assert trials_let_go() == {"inspections": 0, "results": 0, "blobs": 0, "blob_bytes": 0}


def test_a_damaged_result_goes_like_any_other(upload, judge, age):
    version = upload(2)
    old = judge(version)
    age(old, judge(version, generation=1))
    with connection.cursor() as cursor:
        cursor.execute("UPDATE inspections_trialrecord SET result = ''")
    assert trials_let_go()["results"] == old.trials_total


def test_what_a_finding_names_stays_with_its_outputs(upload, judge, script, age):
    script.wrong = {"T/1"}
    version = upload(3)
    old = with_outputs(judge(version))
    age(old, with_outputs(judge(version, generation=1)))
    named = set(trials_of(Finding.objects.get(inspection=old).evidence))
    assert named
    trials_let_go()
    assert keys_of(old) == named
    for record in TrialRecord.objects.filter(key__in=named):
        assert evidence_store().get(record.evidence) == record.key.encode()


def test_what_is_young_stays(upload, judge, script):
    version = upload(2)
    judge(version)
    with_outputs(judge(version, generation=1))
    before = TrialRecord.objects.count()
    assert trials_let_go()["results"] == 0
    assert TrialRecord.objects.count() == before


def test_as_many_inspections_of_a_version_stay_as_the_setting_says(
    upload, judge, script, age, settings
):
    settings.QH_TRIALS_KEEP_INSPECTIONS = 2
    version = upload(2)
    inspections = [judge(version, generation=number) for number in range(4)]
    age(*inspections)
    assert trials_let_go()["inspections"] == 2
    assert [bool(keys_of(row)) for row in inspections] == [False, False, True, True]


def test_the_one_that_decides_stays_however_old(upload, judge, script, age):
    version = upload(2)
    decisive = judge(version)
    informs = [judge(version, effort="quick", generation=number) for number in (1, 2)]
    assert [row.decides for row in (decisive, *informs)] == [True, False, False]
    age(decisive, *informs)
    assert trials_let_go()["inspections"] == 1
    assert [bool(keys_of(row)) for row in (decisive, *informs)] == [True, False, True]


def test_what_a_newer_inspection_took_from_the_store_stays(upload, judge, script, age):
    version = upload(2)
    old, new = judge(version), judge(version)
    assert keys_of(old) == keys_of(new)
    age(old, new)
    done = trials_let_go()
    assert (done["inspections"], done["results"]) == (1, 0)
    assert TrialRecord.objects.count() == len(keys_of(new))


def test_an_inspection_under_way_is_left_alone_and_a_cancelled_one_is_not(
    upload, judge, start, age
):
    version = upload(2)
    judged = judge(version)
    waiting = start(version, generation=1)
    age(judged, waiting)
    assert trials_let_go()["inspections"] == 0
    inspection_cancel(waiting, actor="owner@example.org")
    assert trials_let_go()["inspections"] == 1
    assert keys_of(judged)


def test_what_is_gone_runs_again_to_the_same_report(upload, judge, script, age):
    script.wrong = {"T/1"}
    version = upload(3)
    old = judge(version)
    age(old, judge(version, generation=1))
    trials_let_go()
    script.ran.clear()
    again = judge(version, generation=0)
    assert script.ran
    for name in ("verdict", "findings", "tasks", "rules"):
        assert _same(again.report[name]) == _same(old.report[name])


def _same(value):
    text = json.dumps(value)
    for rule in value if isinstance(value, list) else ():
        if isinstance(rule, dict) and "seconds" in rule:
            text = json.dumps([{**row, "seconds": 0} for row in value])
    return text


def test_one_night_is_bounded_and_the_next_goes_on(upload, judge, script, age, monkeypatch):
    monkeypatch.setattr(retention, "INSPECTIONS", 1)
    version = upload(2)
    age(*[judge(version, generation=number) for number in range(3)])
    assert [trials_let_go()["inspections"] for _ in range(3)] == [1, 1, 0]


def test_nothing_but_unnamed_outputs_goes_where_all_is_kept(upload, judge, script, age, settings):
    settings.QH_TRIALS_KEEP_DAYS = 0
    version = upload(2)
    old = with_outputs(judge(version))
    lost = evidence_store().put(b"of a batch whose worker died")
    age(old, judge(version, generation=1))
    done = trials_let_go()
    assert (done["inspections"], done["results"], done["blobs"]) == (0, 0, 1)
    assert not evidence_store().has(lost)


def test_an_output_just_stored_waits_for_its_row(upload, judge, script):
    waiting = evidence_store().put(b"its batch is not done yet")
    trials_let_go()
    assert evidence_store().has(waiting)


@pytest.mark.django_db(transaction=True)
def test_results_that_go_while_an_inspection_takes_them_run_again(
    upload, judge, start, finish, monkeypatch
):
    version = upload(2)
    first = judge(version)
    real, taken = rounds._turn, []

    def turn(*given):
        found = real(*given)
        if found.known and not taken:
            # A sweep comes between reading the results and naming them.
            taken.extend(item.pk for _, item in found.known)
            InspectionTrial.objects.filter(record__in=taken).delete()
            TrialRecord.objects.filter(pk__in=taken).delete()
        return found

    monkeypatch.setattr(rounds, "_turn", turn)
    second = start(version)
    while not finish(second).verdict:
        Batch.objects.update(ready_at="2020-01-01T00:00:00Z")
    second.refresh_from_db()
    assert taken
    assert second.verdict == first.verdict == "admitted"
    assert keys_of(second)
    assert second.trials_cached == 0


def test_the_nightly_task_is_thin(celery_app, upload, judge, script, age):
    version = upload(2)
    age(judge(version), judge(version, generation=1))
    assert celery_app.tasks["housekeeping.trials"]()["inspections"] == 1
