from __future__ import annotations

import gzip
import json
import os
from datetime import timedelta

import pytest

from qualityhub.inspections.models import Inspection, Waiver
from qualityhub.inspections.waivers import today_utc

pytestmark = pytest.mark.django_db
MANIFEST = "/api/v1/admission/manifest"
CHECK = "/api/v1/admission/check"


def content(response):
    return b"".join(response.streaming_content)  # Read to its end, it closes itself.


def mark_of(response):
    content(response)
    return response["ETag"]


@pytest.fixture
def plain_api(make_api, owner, team):
    return make_api(owner, team, ["gates:read"])


def test_manifest_is_sent_once_and_then_304(read_api, version, judged):
    judged(version, bad=["t2"])
    response = read_api.get(MANIFEST)
    assert response.status_code == 200
    document = json.loads(content(response))
    assert document["schema"] == "qualityhub.manifest/1"
    assert [task["id"] for task in document["environments"][0]["tasks"]] == ["t1"]
    again = read_api.get(MANIFEST, HTTP_IF_NONE_MATCH=response["ETag"])
    assert (again.status_code, again.content, again["ETag"]) == (304, b"", response["ETag"])
    judged(version, bad=["t1", "t2"], generation=1)
    changed = read_api.get(MANIFEST, HTTP_IF_NONE_MATCH=response["ETag"])
    assert changed.status_code == 200
    assert json.loads(content(changed))["environments"] == []


def test_manifest_travels_compressed(read_api, version, judged):
    judged(version)
    plain = read_api.get(MANIFEST)
    packed = read_api.get(MANIFEST, HTTP_ACCEPT_ENCODING="gzip, br")
    assert packed["Content-Encoding"] == "gzip"
    assert gzip.decompress(content(packed)) == content(plain)
    assert packed["ETag"] != plain["ETag"]
    assert "Accept-Encoding" in packed["Vary"]
    for mark in (packed["ETag"], plain["ETag"], f'"other", W/{plain["ETag"]}'):
        assert read_api.get(MANIFEST, HTTP_IF_NONE_MATCH=mark).status_code == 304


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
def test_manifest_arrives_whole_where_the_server_sends_files_by_descriptor(
    read_api, version, judged, encoding
):
    """They copy what is behind ``fileno()``; a compressed file's descriptor has other bytes."""
    judged(version)
    response = read_api.get(MANIFEST, HTTP_ACCEPT_ENCODING=encoding)
    # As Django's WSGI handler chooses between a file and pieces.
    file = getattr(response, "file_to_stream", None)
    body = os.read(file.fileno(), 2**20) if file else content(response)
    response.close()
    document = json.loads(gzip.decompress(body) if encoding == "gzip" else body)
    assert [row["version"] for row in document["environments"]] == [version.public_id]


def test_not_modified_costs_few_queries(read_api, version, judged, django_assert_max_num_queries):
    judged(version)
    mark = mark_of(read_api.get(MANIFEST))
    with django_assert_max_num_queries(6):
        assert read_api.get(MANIFEST, HTTP_IF_NONE_MATCH=mark).status_code == 304


def test_manifest_of_one_domain(read_api, version, judged):
    from qualityhub.registry.models import Domain

    judged(version)
    Domain.objects.create(team=version.environment.team, slug="math", name="Math")
    assert len(json.loads(content(read_api.get(f"{MANIFEST}?domain=code")))["environments"]) == 1
    assert json.loads(content(read_api.get(f"{MANIFEST}?domain=math")))["environments"] == []
    assert read_api.get(f"{MANIFEST}?domain=cooking").status_code == 404


def test_who_sees_the_manifest(teammate_api, outsider_api, plain_api, version, judged):
    judged(version)
    assert len(json.loads(content(teammate_api.get(MANIFEST)))["environments"]) == 1
    assert json.loads(content(outsider_api.get(MANIFEST)))["environments"] == []
    assert plain_api.get(MANIFEST).json()["code"] == "access.scope"
    slug = version.environment.team.slug
    assert outsider_api.get(f"{MANIFEST}?team={slug}").json()["code"] == "team.not_found"


def test_check_in_the_order_asked(read_api, outsider_api, plain_api, version, judged):
    judged(version, bad=["t2"])
    digests = [*version.tasks.order_by("-position").values_list("digest", flat=True), "qh1:none"]
    answers = read_api.post(CHECK, {"digests": digests}).json()["results"]
    assert [(row["digest"], row["admitted"], row["reason"]) for row in answers] == [
        (digests[0], False, "quarantined"),
        (digests[1], True, "admitted"),
        (digests[2], False, "unknown"),
    ]
    hidden = outsider_api.post(CHECK, {"digests": digests}).json()["results"]
    assert {row["reason"] for row in hidden} == {"unknown"}
    assert plain_api.post(CHECK, {"digests": []}).status_code == 403
    for body in (
        {"digests": ["x"] * 513},
        {"digests": ["x", 1.5, None]},
        {"digests": ["nul \0"]},
        {"digests": ["x" * 101]},
        {"digests": "x"},
        {"digest": []},
        {},
    ):
        assert read_api.post(CHECK, body).status_code == 422
    surrogate = '{"digests": ["\\ud800"]}'
    assert read_api.post(CHECK, surrogate, content_type="application/json").status_code == 422


def test_policy_of_a_domain(gatekeeper_api, contributor_api, outsider_api, read_api, domain):
    path = f"/api/v1/domains/{domain.public_id}/admission-policy"
    assert read_api.get(path).json()["number"] == 0
    response = gatekeeper_api.put(path, {"effort": "certify", "severity": {"VER001": "warning"}})
    assert response.status_code == 200, response.json()
    document = read_api.get(path).json()
    assert (document["number"], document["policy"]["effort"]) == (1, "certify")
    assert contributor_api.put(path, {}).json()["code"] == "access.role"
    assert outsider_api.put(path, {}).status_code == outsider_api.get(path).status_code == 404
    assert read_api.put(path, {}).json()["code"] == "access.scope"
    for body, code in (
        ({"efort": "quick"}, "input.unknown_key"),
        ({"ignore": ["NOPE"]}, "rule.unknown"),
        ([1], "input.wrong_type"),
    ):
        assert gatekeeper_api.put(path, body).json()["code"] == code
    assert read_api.get(path).json()["number"] == 1


def test_new_policy_judges_again_what_was_judged(gatekeeper_api, version, make_version, judged):
    judged(version)
    make_version()
    path = f"/api/v1/domains/{version.environment.domain.public_id}/admission-policy"
    assert Inspection.objects.filter(status="queued").count() == 0
    gatekeeper_api.put(path, {"effort": "quick"})
    assert Inspection.objects.filter(status="queued").count() == 0  # the newest was never judged
    judged(make_version())
    gatekeeper_api.put(path, {"effort": "standard", "relax": ["VER001"]})
    assert Inspection.objects.filter(status="queued").count() == 1


@pytest.fixture
def judged_one(judged, version):
    return judged(version)


@pytest.fixture
def waiver_body(version):
    return {
        "environment": version.environment.public_id,
        "code": "VER001",
        "task": "t1",
        "reason": "fixed next week",
        "until": (today_utc() + timedelta(days=7)).isoformat(),
    }


def test_gatekeepers_grant_and_revoke(gatekeeper_api, read_api, version, judged, waiver_body):
    judged(version, bad=["t1"])
    response = gatekeeper_api.post("/api/v1/waivers", waiver_body)
    assert response.status_code == 201, response.json()
    where = response["Location"]
    assert read_api.get(where).json()["granted_by"].startswith("gatekeeper@example.org")
    assert Inspection.objects.filter(status="queued").count() == 1  # judged again
    assert [row["id"] for row in read_api.get("/api/v1/waivers?active=true").json()["results"]] == [
        response.json()["id"]
    ]
    again = gatekeeper_api.post("/api/v1/waivers", waiver_body)
    assert (again.status_code, again.json()["code"]) == (409, "waiver.exists")
    assert gatekeeper_api.delete(where).json()["revoked_at"] is not None
    assert read_api.get("/api/v1/waivers?active=true").json()["results"] == []
    assert len(read_api.get("/api/v1/waivers").json()["results"]) == 1


def test_nobody_else_grants(contributor_api, teammate_api, outsider_api, read_api, waiver_body):
    assert contributor_api.post("/api/v1/waivers", waiver_body).json()["code"] == "access.role"
    assert teammate_api.post("/api/v1/waivers", waiver_body).json()["code"] == "access.role"
    assert outsider_api.post("/api/v1/waivers", waiver_body).status_code == 404
    assert read_api.post("/api/v1/waivers", waiver_body).json()["code"] == "access.scope"
    assert not Waiver.objects.exists()


def test_waivers_must_end(gatekeeper_api, outsider_api, waiver_body):
    for change in ({"until": None}, {"until": "2020-01-01"}, {"until": "someday"}, {"reason": ""}):
        body = {key: value for key, value in {**waiver_body, **change}.items() if value is not None}
        assert gatekeeper_api.post("/api/v1/waivers", body).status_code == 422
    assert not Waiver.objects.exists()
    where = gatekeeper_api.post("/api/v1/waivers", waiver_body)["Location"]
    assert outsider_api.get(where).status_code == outsider_api.delete(where).status_code == 404
    assert outsider_api.get("/api/v1/waivers").json()["results"] == []


def test_audits(gatekeeper_api, contributor_api, outsider_api, read_api, judged_one):
    assert judged_one.decides
    response = gatekeeper_api.post("/api/v1/audits", {"stale_after_hours": 0})
    assert response.status_code == 202, response.json()
    document = read_api.get(response["Location"]).json()
    assert (document["status"], document["considered"], document["started"]) == ("running", 1, 1)
    inspection = Inspection.objects.get(status="queued")
    shown = read_api.get(f"/api/v1/inspections/{inspection.public_id}").json()
    assert (shown["audit"], shown["generation"]) == (document["id"], 1)
    assert len(read_api.get("/api/v1/audits").json()["results"]) == 1
    assert outsider_api.get("/api/v1/audits").json()["results"] == []
    assert outsider_api.get(response["Location"]).status_code == 404
    assert contributor_api.post("/api/v1/audits", {}).json()["code"] == "access.role"
    assert read_api.post("/api/v1/audits", {}).json()["code"] == "access.scope"
    for body in ({"stale_after_hours": -1}, {"hours": 1}):
        assert gatekeeper_api.post("/api/v1/audits", body).status_code == 422
