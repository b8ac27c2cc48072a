from __future__ import annotations

import pytest

from qualityhub.accounts.choices import JOB_SCOPES
from qualityhub.gates.services import gates
from qualityhub.inspections.services import inspection_start
from qualityhub.platform.jobs import Job, JobStatus, job_create, job_finish, job_progress, job_start

pytestmark = pytest.mark.django_db
URL = "/api/v1/jobs"


@pytest.fixture
def job(team):
    return job_create(team_id=team.pk, kind="inspection", object_id="ver_x", total=4)


def test_job_is_shown_from_start_to_end(owner_api, job):
    url = f"{URL}/{job.public_id}"
    assert owner_api.get(url).json()["status"] == "queued"
    assert job_start(job)
    assert job_progress(job, done=3, message="3 of 4 tasks")
    document = owner_api.get(url).json()
    assert document["status"] == "running"
    assert document["progress"] == {"done": 3, "total": 4, "message": "3 of 4 tasks"}
    assert job_finish(job, JobStatus.FAILED, error_code="x.y", error_message="No\0 way.")
    document = owner_api.get(url).json()
    assert document["error"] == {"code": "x.y", "message": "No\ufffd way."}
    assert document["finished_at"]
    assert document["url"] == url


def test_ended_job_stays_as_it_ended(job):
    assert job_finish(job, JobStatus.CANCELLED)
    assert not job_start(job)
    assert not job_progress(job, done=1)
    assert not job_finish(job, JobStatus.SUCCEEDED, result={"verdict": "admitted"})
    job.refresh_from_db()
    assert (job.status, job.result, job.attempt) == ("cancelled", None, 0)


def test_list_filters_and_costs_the_same(owner_api, team, django_assert_max_num_queries):
    for number in range(12):
        job_create(team_id=team.pk, kind="gate.decide" if number % 2 else "inspection")
    with django_assert_max_num_queries(4):
        rows = owner_api.get(URL, {"kind": "gate.decide"}).json()["results"]
    assert len(rows) == 6
    assert owner_api.get(URL, {"status": "succeeded"}).json()["results"] == []


def test_outsider_sees_none(outsider_api, job, is_problem):
    is_problem(outsider_api.get(f"{URL}/{job.public_id}"), 404, "job.not_found")
    assert outsider_api.get(URL).json()["results"] == []


@pytest.mark.parametrize("ref", ["1", "job_x", "job_" + "a" * 26, "ver_" + "a" * 26])
def test_bad_id_is_not_found(owner_api, ref, is_problem):
    is_problem(owner_api.get(f"{URL}/{ref}"), 404, "job.not_found")


def test_wrong_scope_and_method_are_refused(*, make_api, owner, team, owner_api, job, is_problem):
    api = make_api(owner, team, ["results:write"])
    is_problem(api.get(f"{URL}/{job.public_id}"), 403, "access.scope")
    is_problem(owner_api.delete(f"{URL}/{job.public_id}"), 405, "http.method_not_allowed")
    assert Job.objects.count() == 1


def test_a_status_that_no_job_has_is_refused(owner_api, job, is_problem):
    is_problem(owner_api.get(URL, {"status": "zz"}), 400, "query.invalid")


KINDS = ("inspection", "gate.decide", "of.another.kind")


@pytest.mark.parametrize(
    ("scopes", "seen"),
    [
        (["environments:read"], {"inspection"}),
        (["gates:read"], {"gate.decide"}),
        (["environments:read", "gates:read"], {"inspection", "gate.decide"}),
        (["admission:read", "gates:read"], {"gate.decide"}),
        (["admin"], set(KINDS)),
    ],
)
def test_a_token_sees_jobs_of_what_it_may_read(*, make_api, owner, team, scopes, seen, is_problem):
    jobs = {kind: job_create(team_id=team.pk, kind=kind, object_id="insp_x") for kind in KINDS}
    api = make_api(owner, team, scopes)
    assert {row["kind"] for row in api.get(URL).json()["results"]} == seen
    assert {row["kind"] for row in api.get(URL, {"object": "insp_x"}).json()["results"]} == seen
    for kind, job in jobs.items():
        assert len(api.get(URL, {"kind": kind}).json()["results"]) == (kind in seen)
        response = api.get(f"{URL}/{job.public_id}")
        if kind in seen:
            assert response.json()["kind"] == kind
        else:
            is_problem(response, 404, "job.not_found")


def test_a_token_for_training_sees_no_job(*, make_api, owner, team, job, is_problem):
    api = make_api(owner, team, ["admission:read"])
    is_problem(api.get(URL), 403, "access.scope")
    is_problem(api.get(f"{URL}/{job.public_id}"), 403, "access.scope")


def test_every_kind_of_job_that_is_made_has_its_scope(version):
    inspection = inspection_start(version=version, actor="owner@example.org")
    assert {inspection.job.kind, gates.TASK} == set(JOB_SCOPES)
