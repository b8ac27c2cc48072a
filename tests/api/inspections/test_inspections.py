from __future__ import annotations

import json

import pytest

from qualityhub.inspections.models import Batch, Inspection
from qualityhub.platform.jobs import Job

pytestmark = pytest.mark.django_db


@pytest.fixture
def url(version):
    return f"/api/v1/versions/{version.public_id}/inspect"


@pytest.fixture
def no_write_api(make_api, owner, team):
    return make_api(owner, team, ["environments:read", "environments:write"])


def test_inspect_answers_202_with_a_job(
    owner_api, url, version, sent_tasks, django_capture_on_commit_callbacks
):
    with django_capture_on_commit_callbacks(execute=True):
        response = owner_api.post(url, {})
    assert response.status_code == 202
    document = response.json()
    inspection = Inspection.objects.get()
    assert document["inspection"]["id"] == inspection.public_id
    assert document["inspection"]["status"] == "queued"
    assert document["inspection"]["verdict"] is None
    assert document["inspection"]["version"] == version.public_id
    assert response["Location"] == f"/api/v1/jobs/{inspection.job.public_id}"
    job = owner_api.get(response["Location"]).json()
    assert (job["kind"], job["object"]) == ("inspection", inspection.public_id)
    assert Batch.objects.get().kind == "prepare"
    assert sent_tasks.sent == [("inspections.drain", (), "inspect")]


def test_inspect_twice_with_one_key_starts_one(owner_api, url):
    headers = {"HTTP_IDEMPOTENCY_KEY": "once"}
    first = owner_api.post(url, {"effort": "quick"}, **headers)
    second = owner_api.post(url, {"effort": "quick"}, **headers)
    assert first.json() == second.json()
    assert Inspection.objects.count() == Job.objects.count() == 1
    other = owner_api.post(url, {"effort": "certify"}, **headers)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency.mismatch")


def test_fresh_raises_the_generation(owner_api, url, version, judged):
    judged(version)
    assert owner_api.post(url, {}).json()["inspection"]["generation"] == 0
    assert owner_api.post(url, {"fresh": True}).json()["inspection"]["generation"] == 1


def test_by_digest_too(owner_api, version):
    assert owner_api.post(f"/api/v1/versions/{version.digest}/inspect", {}).status_code == 202


def test_who_may_inspect(contributor_api, teammate_api, outsider_api, no_write_api, url):
    assert contributor_api.post(url, {}).status_code == 202
    assert teammate_api.post(url, {}).json()["code"] == "access.role"
    assert outsider_api.post(url, {}).json()["code"] == "version.not_found"
    assert no_write_api.post(url, {}).json()["code"] == "access.scope"
    assert Inspection.objects.count() == 1


def test_anonymous_hears_nothing(anonymous_api, url, version, judged):
    inspection = judged(version)
    for path in (url, "/api/v1/inspections", f"/api/v1/inspections/{inspection.public_id}"):
        assert anonymous_api.get(path).status_code in {401, 405}
    assert anonymous_api.post(url, {}).status_code == 401


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"efort": "quick"}, "input.invalid"),
        ({"effort": "huge"}, "input.invalid"),
        ({"fresh": "perhaps"}, "input.invalid"),
        ({"policy": {"sevrity": {}}}, "input.unknown_key"),
        ({"policy": {"repeats": {"quick": 0}}}, "input.wrong_type"),
        ({"policy": "mild"}, "input.invalid"),
    ],
)
def test_bad_bodies_start_nothing(owner_api, url, body, code):
    response = owner_api.post(url, body)
    assert (response.status_code, response.json()["code"]) == (422, code)
    assert Inspection.objects.count() == 0


def test_list_and_filters(owner_api, read_api, outsider_api, make_version, judged):
    version = make_version()
    first = judged(version, bad=["t1"])
    owner_api.post(f"/api/v1/versions/{make_version().public_id}/inspect", {})

    def listed(query="", api=read_api):
        response = api.get(f"/api/v1/inspections{query}")
        assert response.status_code == 200, response.json()
        return [row["id"] for row in response.json()["results"]]

    assert len(listed()) == 2
    assert listed("?status=finished") == [first.public_id]
    assert listed("?verdict=partial") == [first.public_id]
    assert listed(f"?version={version.public_id}") == [first.public_id]
    assert listed("?domain=code&status=queued") != []
    assert listed("?domain=math") == []
    assert listed(api=outsider_api) == []
    for query in ("?status=done", "?verdict=good", "?colour=red"):
        assert read_api.get(f"/api/v1/inspections{query}").status_code == 400


def test_get_shows_progress_and_verdict(read_api, teammate_api, outsider_api, version, judged):
    inspection = judged(version, bad=["t1"])
    path = f"/api/v1/inspections/{inspection.public_id}"
    document = read_api.get(path).json()
    assert (document["status"], document["verdict"]) == ("finished", "partial")
    assert document["findings"] == {"error": 1}
    assert document["tasks"] == {"admitted": 1, "quarantined": 1}
    assert document["report"] == f"{path}/report"
    assert document["error"] is None
    assert teammate_api.get(path).json() == document
    assert outsider_api.get(path).json()["code"] == "inspection.not_found"
    assert read_api.get("/api/v1/inspections/insp_nothing").status_code == 404


def test_cancel(owner_api, teammate_api, outsider_api, url):
    owner_api.post(url, {})
    path = f"/api/v1/inspections/{Inspection.objects.get().public_id}/cancel"
    assert teammate_api.post(path).status_code == 403
    assert outsider_api.post(path).status_code == 404
    assert owner_api.post(path).json()["status"] == "cancelled"
    again = owner_api.post(path)
    assert (again.status_code, again.json()["code"]) == (409, "inspection.ended")


def test_report_is_the_stored_document(read_api, outsider_api, version, judged):
    inspection = judged(version, bad=["t1"])
    path = f"/api/v1/inspections/{inspection.public_id}/report"
    response = read_api.get(path)
    assert response["Content-Type"] == "application/json"
    assert json.loads(response.content) == inspection.report
    assert json.loads(response.content)["schema"] == "qualityhub.inspection/1"
    assert outsider_api.get(path).status_code == 404


def test_report_in_other_forms(read_api, version, judged):
    inspection = judged(version, bad=["t1"])
    path = f"/api/v1/inspections/{inspection.public_id}/report"
    sarif = read_api.get(f"{path}?format=sarif")
    assert sarif["Content-Type"] == "application/sarif+json"
    assert json.loads(sarif.content)["runs"][0]["results"][0]["ruleId"] == "VER001"
    for form in ("text", "markdown", "junit"):
        assert "VER001" in read_api.get(f"{path}?format={form}").content.decode()
    for form in ("sarif", "markdown", "junit"):
        assert "return 42" not in read_api.get(f"{path}?format={form}").content.decode()
    assert read_api.get(f"{path}?format=pdf").json()["code"] == "query.invalid"


def test_report_before_the_end_is_a_conflict(owner_api, url):
    owner_api.post(url, {})
    path = f"/api/v1/inspections/{Inspection.objects.get().public_id}/report"
    response = owner_api.get(path)
    assert (response.status_code, response.json()["code"]) == (409, "inspection.no_report")


def test_findings_and_their_filters(read_api, outsider_api, version, make_version, judged):
    judged(version, bad=["t1", "t2"])
    inspection = judged(make_version(), bad=["t2"])

    def listed(query="", api=read_api):
        response = api.get(f"/api/v1/findings{query}")
        assert response.status_code == 200, response.json()
        return [(row["task"], row["code"]) for row in response.json()["results"]]

    assert len(listed()) == 3
    assert listed(f"?inspection={inspection.public_id}") == [("t2", "VER001")]
    assert len(listed("?code=VER&severity=error&waived=false&domain=code")) == 3
    assert len(listed(f"?environment={version.environment.public_id}")) == 3
    assert listed("?severity=warning") == listed("?code=DET") == listed("?domain=math") == []
    assert listed(api=outsider_api) == []
    assert read_api.get("/api/v1/findings?severity=bad").status_code == 400
    hidden = outsider_api.get(f"/api/v1/findings?inspection={inspection.public_id}")
    assert hidden.status_code == 404


def test_upload_can_start_the_inspection(owner_api, environment, no_write_api):
    path = f"/api/v1/environments/{environment.public_id}/versions"
    body = {"source": "gymnasium:CartPole-v1", "inspect": True}
    refused = no_write_api.post(path, body)
    assert (refused.status_code, refused.json()["code"]) == (403, "access.scope")
    response = owner_api.post(path, body)
    assert response.status_code == 201, response.json()
    inspection = Inspection.objects.get()
    assert response.json()["inspection"] == inspection.public_id
    assert inspection.trigger == "upload"
    again = owner_api.post(path, body)
    assert (again.status_code, again.json()["inspection"]) == (200, inspection.public_id)
    Inspection.objects.update(status="running")
    running = owner_api.post(path, body)
    assert running.json()["inspection"] == inspection.public_id
    plain = owner_api.post(path, {"source": "gymnasium:Taxi-v3"})
    assert plain.json()["inspection"] is None
    assert Inspection.objects.count() == 1
