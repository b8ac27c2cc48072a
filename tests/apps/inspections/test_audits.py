from __future__ import annotations

from datetime import timedelta

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from qualityhub.inspections.audits import audit_nightly, audit_run
from qualityhub.inspections.models import AuditRun, Inspection
from qualityhub.inspections.services import inspection_cancel
from qualityhub.inspections.subjects import facts_now

pytestmark = pytest.mark.django_db


def age(days):
    Inspection.objects.update(finished_at=timezone.now() - timedelta(days=days))


def test_stale_admitted_versions_are_inspected_afresh(upload, judge, finish, script):
    version = upload(2)
    judge(version)
    age(30)
    script.ran.clear()
    (run,) = audit_nightly(facts_now())
    assert (run.trigger, run.status, run.considered, run.started) == ("nightly", "running", 1, 1)
    inspection = Inspection.objects.get(audit_run=run)
    assert (inspection.trigger, inspection.generation, inspection.priority) == ("audit", 1, 20)
    assert inspection.audit_reason == "last inspected 720 h ago"
    finish(inspection)
    run.refresh_from_db()
    assert (run.status, run.remaining, run.changes) == ("finished", 0, [])
    assert script.ran  # fresh trials, not stored ones


def test_fresh_versions_are_left_alone(upload, judge, team):
    judge(upload(1))
    run = audit_run(team=team, actor="owner@example.org")
    assert (run.considered, run.started, run.status) == (1, 0, "finished")


def test_what_turns_out_bad_is_said_and_loses_admission(upload, judge, finish, script, team):
    version = upload(2)
    judge(version)
    script.wrong = {"T/0", "T/1"}
    run = audit_run(team=team, actor="owner@example.org", stale_after=timedelta(0))
    finish(Inspection.objects.get(audit_run=run))
    run.refresh_from_db()
    (change,) = run.changes
    assert (change["version"], change["before"], change["after"]) == (
        version.public_id,
        "admitted",
        "rejected",
    )
    assert "VER001" in change["appeared"]
    version.refresh_from_db()
    assert version.admission == "rejected"
    assert set(version.tasks.values_list("admitted", flat=True)) == {False}


def test_changed_rules_or_programs_are_a_reason(upload, judge):
    judge(upload(1))
    (run,) = audit_nightly("qh1:other-rules")
    assert run.started == 1
    assert "changed" in Inspection.objects.get(audit_run=run).audit_reason


def test_open_inspections_and_rejected_versions_are_not_audited(upload, judge, script, team):
    good = upload(1)
    judge(good)
    script.wrong = {"T/0"}
    judge(upload(1, shift=1))
    assert audit_run(team=team, actor="a", stale_after=timedelta(0)).started == 1
    second = audit_run(team=team, actor="a", stale_after=timedelta(0))
    assert (second.considered, second.started) == (0, 0)


def test_cancelled_inspection_ends_its_audit(upload, judge, team):
    judge(upload(1))
    run = audit_run(team=team, actor="a", stale_after=timedelta(0))
    inspection_cancel(Inspection.objects.get(audit_run=run), actor="a")
    run.refresh_from_db()
    assert run.status == "finished"
    assert run.changes[0]["after"] == "cancelled"


def test_nightly_audits_only_teams_with_something_admitted(upload, judge, team, other_team):
    judge(upload(1))
    assert [run.team for run in audit_nightly(facts_now())] == [team]


def test_command_starts_an_audit(upload, judge, team, capsys):
    judge(upload(1))
    call_command("audit", team=team.slug, all=True)
    assert f"{team.slug}: 1 of 1 admitted versions" in capsys.readouterr().out
    assert AuditRun.objects.get().started == 1
    with pytest.raises(CommandError):
        call_command("audit", team="nobody")


def test_an_audit_keeps_nobody_from_writing_in_the_team(upload, judge, team):
    judge(upload())
    with CaptureQueriesContext(connection) as queries:
        audit_run(team=team, actor="night", stale_after=timedelta(0))
    locks = [
        row["sql"]
        for row in queries
        if 'FROM "accounts_team"' in row["sql"] and " FOR " in row["sql"]
    ]
    # Rows that point at the team take FOR KEY SHARE, which FOR UPDATE would keep waiting.
    assert locks
    assert all(sql.endswith("FOR NO KEY UPDATE") for sql in locks)
