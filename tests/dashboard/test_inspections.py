from __future__ import annotations

import json

import pytest

from qualityhub.engine.reports.safe import public_evidence
from qualityhub.inspections.models import Inspection
from qualityhub.inspections.services import inspection_error, inspection_start

pytestmark = pytest.mark.django_db


def test_the_list_filters_by_domain_verdict_and_status(member, version, inspected):
    done = inspected(version)
    waiting = inspection_start(version=version, actor="x")

    def shown(**query):
        return [row.public_id for row in member.get("/inspections/", query).context["page"].rows]

    assert shown() == [waiting.public_id, done.public_id]
    assert shown(verdict="partial") == [done.public_id]
    assert shown(verdict="admitted") == []
    assert shown(status="queued", domain="code") == [waiting.public_id]
    assert shown(domain="nowhere", status="x") == [waiting.public_id, done.public_id]


def test_the_list_has_pages_and_keeps_filters(member, version, inspected, text_of):
    inspection = inspected(version)
    rows = []
    for _ in range(54):
        row = Inspection.objects.get(pk=inspection.pk)
        job = row.job
        job.pk = job._state.adding = None
        job.public_id = type(job)._meta.get_field("public_id").get_default()
        job.save(force_insert=True)
        row.pk, row.job = None, job
        row.public_id = Inspection._meta.get_field("public_id").get_default()
        rows.append(row)
    Inspection.objects.bulk_create(rows)
    page = text_of(member.get("/inspections/", {"verdict": "partial"}))
    assert "verdict=partial&amp;page=2" in page
    assert len(member.get("/inspections/", {"page": "2"}).context["page"].rows) == 5


def test_an_inspection_shows_its_report(member, version, inspected, text_of):
    inspection = inspected(version)
    page = text_of(member.get(f"/inspections/{inspection.public_id}/"))
    assert "1 of 2 tasks may be used for training" in page
    for kind in ("json", "sarif", "md"):
        assert f"/inspections/{inspection.public_id}/report.{kind}" in page


@pytest.mark.parametrize("kind", ["json", "sarif", "md"])
def test_files_leave_without_the_answer_key(member, version, inspected, kind):
    inspection = inspected(version)
    response = member.get(f"/inspections/{inspection.public_id}/report.{kind}")
    assert response["Content-Disposition"].startswith("attachment")
    text = response.content.decode()
    assert "VER001" in text
    assert "return 41" not in text
    assert "answer_key" not in text
    if kind != "md":
        assert json.loads(text)


def test_the_json_file_is_the_report_otherwise(member, version, inspected):
    inspection = inspected(version)
    document = member.get(f"/inspections/{inspection.public_id}/report.json").json()
    report = json.loads(json.dumps(inspection.report))
    for finding in report["findings"]:
        finding["evidence"] = public_evidence(finding["evidence"])
    assert document == report


def test_findings_are_filtered_by_rule_level_and_task(member, version, inspected, make_finding):
    inspection = inspected(
        version,
        findings=[
            make_finding(1),
            make_finding(2, code="DEP001", severity="warning", task=None),
            make_finding(3, kind="lead", severity="info", task="t1"),
        ],
    )

    def shown(**query):
        response = member.get(f"/inspections/{inspection.public_id}/findings/", query)
        return [view.raw["id"][-1] for view in response.context["findings"]]

    assert shown() == ["1", "2", "3"]
    assert shown(code="DEP001") == ["2"]
    assert shown(level="lead") == ["3"]
    assert shown(level="warning") == ["2"]
    assert shown(task="t1") == ["3"]


def test_progress_says_how_far_it_is(editor, version):
    inspection = inspection_start(version=version, actor="x")
    path = f"/inspections/{inspection.public_id}/progress.json"
    assert editor.get(path).json() == {
        "status": "queued",
        "ended": False,
        "done": 0,
        "total": 0,
        "message": "Waiting for a worker",
    }
    Inspection.objects.filter(pk=inspection.pk).update(
        status="running", trials_total=1200, trials_done=30, round=2
    )
    document = editor.get(path).json()
    assert document["message"] == "30 of 1,200 trials so far, round 2"
    assert (document["done"], document["total"]) == (30, 1200)


def test_cancelling_ends_it_and_says_so(editor, version, text_of):
    inspection = inspection_start(version=version, actor="x")
    path = f"/inspections/{inspection.public_id}/"
    assert editor.post(f"{path}cancel/").status_code == 302
    assert "It was cancelled and says nothing about the version" in text_of(editor.get(path))
    assert editor.get(f"{path}progress.json").json()["ended"] is True
    again = editor.post(f"{path}cancel/")
    assert again.status_code == 409
    assert b"has ended already" in again.content


def test_viewers_cannot_cancel(member, version):
    inspection = inspection_start(version=version, actor="x")
    assert member.post(f"/inspections/{inspection.public_id}/cancel/").status_code == 403


def test_our_own_failure_is_not_blamed_on_the_environment(member, version, hostile, text_of):
    inspection = inspection_start(version=version, actor="x")
    inspection_error(inspection.pk, code="machinery.lost", message=hostile)
    page = text_of(member.get(f"/inspections/{inspection.public_id}/"))
    assert "this says nothing about the environment" in page
    assert "machinery.lost" in page
    assert "<script>alert" not in page
    missing = member.get(f"/inspections/{inspection.public_id}/report.json")
    assert missing.status_code == 404


def test_more_inspections_take_no_more_queries(
    member, version, make_version, inspected, queries_of
):
    inspected(version)
    few = queries_of(member, "/inspections/")
    for _ in range(5):
        inspected(make_version())
    assert queries_of(member, "/inspections/") == few <= 10
