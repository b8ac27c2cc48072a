"""Audits and checkpoints."""

from __future__ import annotations

import pytest

from qualityhub.inspections.models import AuditRun

pytestmark = pytest.mark.django_db


@pytest.fixture
def audit(team, version, inspected, hostile):
    inspection = inspected(version)
    return AuditRun.objects.create(
        team=team,
        trigger="nightly",
        status="finished",
        actor="system",
        considered=4,
        started=1,
        changes=[
            {
                "environment": version.environment.public_id,
                "name": hostile,
                "inspection": inspection.public_id,
                "before": "admitted",
                "after": "rejected",
                "appeared": ["VER001"],
                "gone": [],
            }
        ],
    )


def test_audits_say_what_changed(member, audit, text_of):
    page = text_of(member.get("/audits/"))
    assert "1 inspection of 4 admitted versions" in page
    assert "1 change" in page
    assert "rejected" in page
    assert "<script>alert" not in page


def test_no_audit_yet(member, team, text_of):
    assert "No audit has run yet" in text_of(member.get("/audits/"))


def test_more_audits_take_no_more_queries(member, audit, team, queries_of):
    few = queries_of(member, "/audits/")
    for _ in range(5):
        AuditRun.objects.create(team=team, trigger="manual", actor="x")
    assert queries_of(member, "/audits/") == few <= 8


def test_checkpoints_show_runs_rows_and_roles(member, gate_of, team, text_of):
    from qualityhub.gates.services.baselines import baseline_set

    gate = gate_of({"code": (0.5, 0.5)})
    baseline_set(team=team, kind="last_promoted", runs=list(gate.baseline_runs.all()), actor="x")
    page = text_of(member.get("/checkpoints/"))
    assert page.index("step-1") < page.index("base-1")
    assert "sealed" in page
    assert "120" in page
    assert "last promoted" in page[page.index("base-1") :]
    assert "last promoted" not in page[: page.index("base-1")]


def test_no_checkpoint_yet(member, team, text_of):
    assert "No checkpoint was recorded yet" in text_of(member.get("/checkpoints/"))


def test_more_checkpoints_take_no_more_queries(member, gate_of, queries_of):
    gate_of({"code": (0.5, 0.5)})
    few = queries_of(member, "/checkpoints/")
    gate_of({"code": (0.5, 0.5)})
    gate_of({"code": (0.5, 0.5)})
    assert queries_of(member, "/checkpoints/") == few <= 8
