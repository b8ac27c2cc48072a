from __future__ import annotations

import pytest

from qualityhub.gates.models import Checkpoint, EvalRun
from qualityhub.platform.audit import AuditEvent

pytestmark = pytest.mark.django_db
UNKNOWN = {"checkpoints": "ckpt_" + "a" * 26, "eval-runs": "run_" + "a" * 26}


def test_a_checkpoint_is_made_found_and_listed(owner_api, team):
    made = owner_api.post(
        "/api/v1/checkpoints",
        {"name": "step-1", "lineage": "main", "variant": "fp8", "attributes": {"step": 1}},
    )
    assert made.status_code == 201
    body = made.json()
    assert (body["name"], body["team"], body["parent"]) == ("step-1", "red-lab", None)
    assert body["id"].startswith("ckpt_")
    assert made["Location"] == f"/api/v1/checkpoints/{body['id']}"
    assert owner_api.get(made["Location"]).json() == body
    child = owner_api.post("/api/v1/checkpoints", {"name": "step-2", "parent": body["id"]}).json()
    assert child["parent"] == body["id"]
    page = owner_api.get("/api/v1/checkpoints?limit=1").json()
    assert [item["name"] for item in page["results"]] == ["step-2"]
    assert [i["name"] for i in owner_api.get(page["next"]).json()["results"]] == ["step-1"]
    found = owner_api.get("/api/v1/checkpoints?name=step-1&lineage=main").json()["results"]
    assert [item["id"] for item in found] == [body["id"]]
    assert AuditEvent.objects.filter(action="checkpoint.created").count() == 2


def test_a_checkpoints_name_is_taken_once(owner_api, outsider_api, checkpoint):
    again = owner_api.post("/api/v1/checkpoints", {"name": checkpoint.name})
    assert (again.status_code, again.json()["code"]) == (409, "checkpoints.exists")
    assert outsider_api.post("/api/v1/checkpoints", {"name": checkpoint.name}).status_code == 201


def test_a_run_is_opened_filled_sealed_and_listed(owner_api, checkpoint, domain, send):
    made = owner_api.post(
        "/api/v1/eval-runs",
        {
            "checkpoint": checkpoint.public_id,
            "name": "nightly",
            "domain": domain.slug,
            "harness": {"name": "ours", "version": "1.2"},
            "sampling": {"temperature": 0.6},
        },
    )
    assert made.status_code == 201
    body = made.json()
    assert (body["status"], body["rows"], body["domain"]) == ("open", 0, "code")
    seal = f"{made['Location']}/seal"
    assert owner_api.post(seal).json()["code"] == "runs.empty"
    send(owner_api, body["id"], [{"task": "t", "attempt": 0, "reward": 1}])
    sealed = owner_api.post(seal).json()
    assert (sealed["status"], sealed["rows"]) == ("sealed", 1)
    assert owner_api.post(seal).json() == sealed
    listed = owner_api.get(
        f"/api/v1/eval-runs?checkpoint={checkpoint.public_id}&status=sealed&name=nightly"
    ).json()["results"]
    assert listed == [sealed]
    assert owner_api.get("/api/v1/eval-runs?status=open").json()["results"] == []
    assert AuditEvent.objects.filter(action="run.sealed").count() == 1


@pytest.mark.parametrize(
    ("path", "body", "pointer"),
    [
        ("checkpoints", {}, "/name"),
        ("checkpoints", {"name": ""}, "/name"),
        ("checkpoints", {"name": None}, "/name"),
        ("checkpoints", {"name": ["a"]}, "/name"),
        ("checkpoints", {"name": "a\0b"}, "/name"),
        ("checkpoints", {"name": "x" * 201}, "/name"),
        ("checkpoints", {"name": "a", "linage": "x"}, "/linage"),
        ("checkpoints", {"name": "a", "attributes": [1]}, "/attributes"),
        ("checkpoints", {"name": "a", "attributes": {"k": "a\0b"}}, "/attributes"),
        ("checkpoints", {"name": "a", "attributes": {"k": "x" * 17_000}}, "/attributes"),
        ("eval-runs", {"name": "n"}, "/checkpoint"),
        ("eval-runs", {"checkpoint": 7, "name": {"a": 1}}, "/name"),
        ("eval-runs", {"checkpoint": "c", "name": "n", "harness": "h"}, "/harness"),
        ("eval-runs", {"checkpoint": "c", "name": "n", "smapling": {}}, "/smapling"),
    ],
)
def test_a_body_that_does_not_fit_names_the_member(owner_api, path, body, pointer):
    answer = owner_api.post(f"/api/v1/{path}", body)
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (422, "input.invalid")
    assert pointer in [error["pointer"] for error in problem["errors"]]
    assert not Checkpoint.objects.exists()


def test_an_unknown_member_comes_with_a_guess(owner_api):
    problem = owner_api.post("/api/v1/checkpoints", {"name": "a", "linage": "x"}).json()
    assert "lineage" in problem["errors"][0]["detail"]


def test_names_that_hide_things_are_refused(owner_api, checkpoint):
    for name in ("a\x1b[31m", "a\u202eb", "a\nb"):
        answer = owner_api.post("/api/v1/checkpoints", {"name": name})
        assert answer.json()["code"] == "checkpoints.bad_name"
        answer = owner_api.post(
            "/api/v1/eval-runs", {"checkpoint": checkpoint.public_id, "name": name}
        )
        assert answer.json()["code"] == "runs.bad_name"


@pytest.mark.parametrize("path", ["checkpoints", "eval-runs"])
@pytest.mark.parametrize("body", [b"", b"{", b'{"name": NaN}', b"[]", b'"x"', b'{"name": "\xff"}'])
def test_a_body_that_is_no_object_is_refused(owner_api, path, body):
    answer = owner_api.post(f"/api/v1/{path}", body, content_type="application/json")
    assert answer.status_code in {400, 422}
    assert answer["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize("path", ["checkpoints", "eval-runs"])
@pytest.mark.parametrize(
    "query", ["?nmae=x", "?limit=0", "?limit=x", "?cursor=x", "?name=%00", "?name=a&name=b"]
)
def test_a_query_that_is_not_understood_is_refused(owner_api, path, query):
    assert owner_api.get(f"/api/v1/{path}{query}").status_code == 400


def test_a_status_that_does_not_exist_is_refused(owner_api):
    assert owner_api.get("/api/v1/eval-runs?status=closed").status_code == 400


def test_what_is_another_teams_is_not_there(outsider_api, checkpoint, run, domain, team):
    for path, row in (("checkpoints", checkpoint), ("eval-runs", run)):
        assert outsider_api.get(f"/api/v1/{path}").json()["results"] == []
        assert outsider_api.get(f"/api/v1/{path}?team={team.slug}").status_code == 404
        foreign = outsider_api.get(f"/api/v1/{path}/{row.public_id}")
        unknown = outsider_api.get(f"/api/v1/{path}/{UNKNOWN[path]}")
        assert (foreign.status_code, unknown.status_code) == (404, 404)
        assert foreign.json()["detail"] == unknown.json()["detail"]
    mine = {"checkpoint": checkpoint.public_id, "name": "n"}
    assert outsider_api.post("/api/v1/eval-runs", mine).status_code == 404
    assert outsider_api.post(f"/api/v1/eval-runs/{run.public_id}/seal").status_code == 404
    child = {"name": "mine", "parent": checkpoint.public_id}
    assert outsider_api.post("/api/v1/checkpoints", child).status_code == 404
    own = outsider_api.post("/api/v1/checkpoints", {"name": "mine"}).json()["id"]
    theirs = {"checkpoint": own, "name": "n", "domain": domain.public_id}
    assert outsider_api.post("/api/v1/eval-runs", theirs).status_code == 404
    assert EvalRun.objects.count() == 1


@pytest.mark.parametrize("ref", ["x", "ckpt_", "run_1", "' OR 1=1", "ckpt_" + "A" * 26])
def test_ids_that_are_none_are_not_found(owner_api, ref):
    assert owner_api.get(f"/api/v1/checkpoints/{ref}").status_code == 404
    assert owner_api.get(f"/api/v1/eval-runs/{ref}").status_code == 404


def test_who_may_write(teammate_api, read_api, anonymous_api, checkpoint, run):
    body = {"checkpoint": checkpoint.public_id, "name": "n"}
    for api, status, code in (
        (anonymous_api, 401, "auth.missing"),
        (read_api, 403, "access.scope"),
        (teammate_api, 403, "access.role"),
    ):
        for path, data in (
            ("checkpoints", {"name": "n"}),
            ("eval-runs", body),
            (f"eval-runs/{run.public_id}/seal", {}),
        ):
            answer = api.post(f"/api/v1/{path}", data)
            assert (answer.status_code, answer.json()["code"]) == (status, code), path


def test_who_may_read(teammate_api, narrow, anonymous_api, checkpoint, run):
    for path in (
        "checkpoints",
        f"checkpoints/{checkpoint.public_id}",
        "eval-runs",
        f"eval-runs/{run.public_id}",
    ):
        assert teammate_api.get(f"/api/v1/{path}").status_code == 200
        assert narrow.get(f"/api/v1/{path}").json()["code"] == "access.scope"
        assert anonymous_api.get(f"/api/v1/{path}").status_code == 401


def test_a_repeated_post_makes_one(owner_api):
    for _ in range(2):
        answer = owner_api.post("/api/v1/checkpoints", {"name": "once"}, HTTP_IDEMPOTENCY_KEY="k-1")
        assert answer.status_code == 201
    other = owner_api.post("/api/v1/checkpoints", {"name": "x"}, HTTP_IDEMPOTENCY_KEY="k-1")
    assert other.json()["code"] == "idempotency.mismatch"
    assert Checkpoint.objects.count() == 1


@pytest.mark.parametrize("path", ["checkpoints", "eval-runs"])
def test_lists_take_the_same_queries_whatever_their_length(
    owner_api, team, domain, path, django_assert_max_num_queries
):
    parent = Checkpoint.objects.create(team=team, name="root")
    for number in range(30):
        checkpoint = Checkpoint.objects.create(team=team, name=f"c{number}", parent=parent)
        EvalRun.objects.create(checkpoint=checkpoint, name="r", domain=domain)
    with django_assert_max_num_queries(6):
        assert len(owner_api.get(f"/api/v1/{path}").json()["results"]) >= 30
