"""The hub's store: a blob before its row; what is damaged counts as absent and runs again."""

from __future__ import annotations

import pytest
from django.db import connection

from qualityhub.inspections import rounds
from qualityhub.inspections.models import InspectionTrial, TrialRecord
from qualityhub.inspections.results import BatchStore, evidence_store, results_known, results_store

pytestmark = pytest.mark.django_db


def damage(record, kind):
    """Change the bytes of a result as they lie in the table."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT result FROM inspections_trialrecord WHERE id = %s", [record.pk])
        data = bytes(cursor.fetchone()[0])
        changed = {
            "flipped": data[:12] + bytes([data[12] ^ 1]) + data[13:],
            "cut": data[:-7],
            "empty": b"",
            "other": b"not packed",
        }[kind]
        cursor.execute(
            "UPDATE inspections_trialrecord SET result = %s WHERE id = %s", [changed, record.pk]
        )


KINDS = ["flipped", "cut", "empty", "other"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_result_runs_again_in_the_next_inspection(upload, judge, script, kind):
    version = upload(3)
    first = judge(version)
    record = TrialRecord.objects.order_by("?").first()
    damage(record, kind)
    assert results_known(record.team_id, [record.key]) == {}
    script.ran.clear()
    again = judge(version)
    assert script.ran == [record.key]
    assert again.verdict == first.verdict
    assert record.key in results_known(record.team_id, [record.key])


@pytest.mark.parametrize("kind", KINDS)
def test_a_result_damaged_on_the_way_runs_again_in_the_same_inspection(
    upload, judge, script, monkeypatch, kind
):
    real, damaged = rounds.observed, []

    def observed(inspection, **given):
        if not damaged and (link := InspectionTrial.objects.filter(inspection=inspection).first()):
            damaged.append(link.key)
            damage(link.record, kind)
        return real(inspection, **given)

    monkeypatch.setattr(rounds, "observed", observed)
    inspection = judge(upload(3))
    assert (inspection.status, inspection.verdict) == ("finished", "admitted")
    assert script.ran.count(damaged[0]) == 2
    assert len(set(script.ran)) == len(script.ran) - 1 == TrialRecord.objects.count()


def test_one_damaged_result_spoils_no_other(upload, judge, script):
    judge(upload(3))
    bad, *good = TrialRecord.objects.all()
    damage(bad, "other")
    found = results_known(bad.team_id, [bad.key, *(row.key for row in good)])
    assert set(found) == {row.key for row in good}


def test_the_row_names_the_blob_that_is_there(upload, start, make_trial):
    result = make_trial(start(upload(2)), {"stdout": b"x" * 5000})
    record = TrialRecord.objects.get(key=result.key)
    assert record.evidence == result.evidence == record.result["evidence"]
    assert evidence_store().get(record.evidence) is not None
    assert evidence_store().durable


def test_a_blob_that_cannot_be_stored_leaves_no_row(upload, start, make_trial, qh_home):
    inspection = start(upload(2))
    folder = qh_home / "blobs" / "evidence"
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.write_bytes(b"in the way")
    with pytest.raises(OSError, match="evidence"):
        make_trial(inspection, {"stdout": b"x"})
    assert TrialRecord.objects.count() == 0


def test_a_result_without_its_blob_still_counts(upload, start, make_trial, script):
    inspection = start(upload(2))
    result = make_trial(inspection, {"stdout": b"x" * 5000})
    assert evidence_store().delete(result.evidence)
    assert results_known(inspection.team_id, [result.key])[result.key].result == result


def test_a_repaired_result_names_its_new_evidence(upload, start, make_trial):
    from dataclasses import replace

    from qualityhub.engine.trials.model import Ask, Trial, Variation

    inspection = start(upload(2))
    trial = Trial("function", (Ask("t", "nop"),), {}, {}, Variation(), 0, 0, "w", 5.0)
    old = replace(make_trial(inspection), key=trial.key)
    results_store(inspection, None, [(trial, old)])
    damage(TrialRecord.objects.get(key=trial.key), "cut")
    new = replace(old, evidence=BatchStore({}).keep({"stdout": b"y" * 5000}))
    results_store(inspection, None, [(trial, new)])
    assert TrialRecord.objects.get(key=trial.key).evidence == new.evidence


def test_the_folder_of_evidence_is_apart_from_packages(settings, tmp_path):
    settings.QH_BLOBS = tmp_path / "shared"
    name = BatchStore({}).keep({"stdout": b"x"})
    assert list((tmp_path / "shared" / "evidence").rglob(f"{name}.zst"))
