from __future__ import annotations

import json

import pytest

from qualityhub.platform.audit import AuditEvent
from qualityhub.registry.models import Domain, Environment

pytestmark = pytest.mark.django_db
URL = "/api/v1/environments"


def test_create_makes_the_caller_its_owner(owner_api, domain):
    response = owner_api.post(URL, {"domain": "code", "name": "Human Eval"})
    assert response.status_code == 201
    document = response.json()
    assert (document["slug"], document["domain"]) == ("human-eval", "code")
    assert document["owners"] == ["owner@example.org"]
    assert owner_api.get(response["Location"]).json() == document


def test_domain_can_be_named_by_id(owner_api, domain):
    assert owner_api.post(URL, {"domain": domain.public_id, "name": "X"}).status_code == 201


def test_unknown_and_foreign_domains_are_not_found(owner_api, other_team, is_problem):
    foreign = Domain.objects.create(team=other_team, slug="math", name="Math")
    for ref in ("nothing", "math", foreign.public_id):
        response = owner_api.post(URL, {"domain": ref, "name": "X"})
        is_problem(response, 404, "domain.not_found")
    assert not Environment.objects.exists()


def test_same_slug_in_a_domain_is_a_conflict(owner_api, environment, is_problem):
    response = owner_api.post(URL, {"domain": "code", "name": "Sums"})
    is_problem(response, 409, "environment.exists")


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"domain": "code"}, ["sums"]),
        ({"domain": "math"}, []),
        ({"name": "sums"}, ["sums"]),
        ({"name": "Sums"}, ["sums"]),
        ({"name": "sum"}, []),
        ({"q": "UM"}, ["sums"]),
        ({"q": "_"}, []),
    ],
)
def test_filters(owner_api, environment, query, found):
    rows = owner_api.get(URL, query).json()["results"]
    assert [row["slug"] for row in rows] == found


def test_list_costs_the_same_however_long(
    owner_api, team, domain, owner, django_assert_max_num_queries
):
    for number in range(12):
        row = Environment.objects.create(team=team, domain=domain, slug=f"e{number}", name="E")
        row.owners.add(owner)
    with django_assert_max_num_queries(5):
        page = owner_api.get(URL, {"limit": 10}).json()
    assert len(page["results"]) == 10
    assert len(owner_api.get(page["next"]).json()["results"]) == 2


def test_count_of_versions_is_shown(owner_api, environment, make_version):
    make_version()
    make_version()
    url = f"{URL}/{environment.public_id}"
    assert owner_api.get(url).json()["versions"] == 2


def test_change_is_recorded_with_before_and_after(owner_api, environment):
    url = f"{URL}/{environment.public_id}"
    response = owner_api.patch(url, {"description": "Adds numbers."})
    assert response.status_code == 200
    assert response.json()["description"] == "Adds numbers."
    event = AuditEvent.objects.get(action="environment.changed")
    assert (event.before, event.after) == ({"description": ""}, {"description": "Adds numbers."})
    owner_api.patch(url, {"description": "Adds numbers."})
    assert AuditEvent.objects.filter(action="environment.changed").count() == 1


def test_bad_change_is_refused(owner_api, environment, is_problem):
    url = f"{URL}/{environment.public_id}"
    is_problem(owner_api.patch(url, {"slug": "other"}), 422, "input.invalid")
    is_problem(owner_api.patch(url, {"name": ""}), 422, "input.invalid")
    environment.refresh_from_db()
    assert (environment.slug, environment.name) == ("sums", "Sums")


def test_outsider_sees_nothing(outsider_api, environment, is_problem):
    url = f"{URL}/{environment.public_id}"
    assert outsider_api.get(URL).json()["results"] == []
    is_problem(outsider_api.get(url), 404, "environment.not_found")
    is_problem(outsider_api.patch(url, {"name": "X"}), 404, "environment.not_found")
    is_problem(
        outsider_api.put(f"{url}/task-roles", {"roles": {"t": "gate"}}),
        404,
        "environment.not_found",
    )


def test_viewer_may_read_alone(teammate_api, environment, is_problem):
    url = f"{URL}/{environment.public_id}"
    assert teammate_api.get(url).status_code == 200
    is_problem(teammate_api.patch(url, {"name": "X"}), 403, "access.role")
    is_problem(teammate_api.post(URL, {"domain": "code", "name": "X"}), 403, "access.role")


def test_wrong_scope_is_refused(make_api, owner, team, environment, is_problem):
    api = make_api(owner, team, ["admission:read"])
    is_problem(api.get(URL), 403, "access.scope")
    is_problem(api.get(f"{URL}/{environment.public_id}"), 403, "access.scope")


def test_task_roles_need_a_gatekeeper(
    *, owner_api, make_api, contributor, team, environment, version, is_problem
):
    url = f"{URL}/{environment.public_id}/task-roles"
    assert owner_api.put(url, {"roles": {"t2": "gate"}}).status_code == 204
    assert dict(version.tasks.values_list("task_id", "role")) == {"t1": "train", "t2": "gate"}
    api = make_api(contributor, team)
    is_problem(api.put(url, {"roles": {"t1": "gate"}}), 403, "access.role")
    is_problem(owner_api.put(url, {"roles": {"t1": "test"}}), 422, "input.invalid")


@pytest.mark.parametrize("ref", ["1", "env_", "env_" + "1" * 26, "ver_" + "a" * 26, "%00"])
def test_bad_id_is_not_found(owner_api, ref, is_problem):
    is_problem(owner_api.get(f"{URL}/{ref}"), 404, "environment.not_found")


def test_other_methods_are_refused(owner_api, environment, is_problem):
    response = owner_api.delete(f"{URL}/{environment.public_id}")
    is_problem(response, 405, "http.method_not_allowed")


@pytest.mark.parametrize("task", ["\0", "a\0b", "\ud800"])
def test_task_ids_that_cannot_be_stored_are_refused(owner_api, environment, task, is_problem):
    url = f"{URL}/{environment.public_id}/task-roles"
    body = json.dumps({"roles": {task: "gate"}})
    response = owner_api.put(url, body, content_type="application/json")
    is_problem(response, 422, "input.not_storable")


@pytest.mark.parametrize(
    "body", ["[" * 100_000, '{"a":' * 50_000, '{"name": NaN}', "\xff", "", "{", '{"a": 1}}']
)
def test_json_built_to_break_the_reader_is_malformed(owner_api, body, is_problem):
    response = owner_api.post(URL, body, content_type="application/json")
    assert response.status_code in {400, 422}
    is_problem(response, response.status_code, response.json()["code"])


def test_body_beyond_the_limit_is_refused(owner_api, settings, is_problem):
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 100
    body = {"domain": "code", "name": "x" * 200}
    is_problem(owner_api.post(URL, body), 413, "input.too_large")
