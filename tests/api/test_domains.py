from __future__ import annotations

import pytest

from qualityhub.platform.audit import AuditEvent
from qualityhub.registry.models import Domain

pytestmark = pytest.mark.django_db
URL = "/api/v1/domains"


def test_create_answers_with_the_domain_and_its_place(owner_api):
    response = owner_api.post(URL, {"name": "3D Scenes"})
    assert response.status_code == 201
    assert response.json()["slug"] == "3d-scenes"
    assert owner_api.get(response["Location"]).json()["name"] == "3D Scenes"
    event = AuditEvent.objects.get(action="domain.created")
    assert event.actor == "owner@example.org by token for tests"
    assert event.request_id == response["X-Request-ID"]


def test_slug_is_unique_in_a_team_only(owner_api, outsider_api, is_problem):
    assert owner_api.post(URL, {"name": "Code"}).status_code == 201
    is_problem(owner_api.post(URL, {"name": "Code"}), 409, "domain.exists")
    assert outsider_api.post(URL, {"name": "Code"}).status_code == 201


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/name"),
        ({"name": ""}, "/name"),
        ({"name": "x" * 101}, "/name"),
        ({"name": "a\0b"}, "/name"),
        ({"name": ["x"]}, "/name"),
        ({"name": 123}, "/name"),
        ({"name": 1.5}, "/name"),
        ({"name": "x", "nmae": 1}, "/nmae"),
    ],
)
def test_bad_body_points_at_the_member(owner_api, body, pointer, is_problem):
    document = is_problem(owner_api.post(URL, body), 422, "input.invalid")
    assert [error["pointer"] for error in document["errors"]] == [pointer]
    assert not Domain.objects.exists()


@pytest.mark.parametrize("slug", ["UPPER", "-x", "x-", "a b", "ünï", "a/b", "../x"])
def test_bad_slug_is_refused(owner_api, slug, is_problem):
    is_problem(owner_api.post(URL, {"name": "X", "slug": slug}), 422, "domain.invalid")


def test_name_without_a_usable_slug_asks_for_one(owner_api, is_problem):
    is_problem(owner_api.post(URL, {"name": "日本"}), 422, "domain.invalid")


def test_list_shows_own_team_only(owner_api, outsider_api, domain):
    assert [row["slug"] for row in owner_api.get(URL).json()["results"]] == ["code"]
    assert outsider_api.get(URL).json() == {"results": [], "next": None}


def test_pages_follow_one_another_without_gap_or_repeat(owner_api, team):
    for number in range(7):
        Domain.objects.create(team=team, slug=f"d{number}", name="D")
    url, seen = f"{URL}?limit=3", []
    while url:
        page = owner_api.get(url).json()
        seen += [row["slug"] for row in page["results"]]
        url = page["next"]
    assert seen == [f"d{number}" for number in range(7)]


def test_list_costs_the_same_however_long(owner_api, team, django_assert_max_num_queries):
    for number in range(20):
        Domain.objects.create(team=team, slug=f"d{number}", name="D")
    with django_assert_max_num_queries(4):
        assert len(owner_api.get(URL).json()["results"]) == 20


@pytest.mark.parametrize("limit", ["0", "201", "-1", "x", "1e2", "²", "9" * 30])
def test_bad_limit_is_refused(owner_api, limit, is_problem):
    is_problem(owner_api.get(URL, {"limit": limit}), 400, "paging.bad_limit")


@pytest.mark.parametrize(
    "cursor",
    [
        "x",
        "é",
        "e30",
        "WyJhIl0",
        "WzFd",
        "WyJhIiwgImIiXQ",
        "WyJhIiwgIjk5OTk5OTk5OTk5OTk5OTk5OTk5Il0",
    ],
)
def test_foreign_cursor_is_refused(owner_api, cursor, is_problem):
    is_problem(owner_api.get(URL, {"cursor": cursor}), 400, "paging.bad_cursor")


def test_unknown_parameter_is_refused_with_the_nearest_name(owner_api, is_problem):
    document = is_problem(owner_api.get(URL, {"limt": "3"}), 400, "query.unknown")
    assert "Did you mean 'limit'?" in document["detail"]


def test_repeated_and_impossible_parameters_are_refused(owner_api, is_problem):
    is_problem(owner_api.get(f"{URL}?q=a&q=b"), 400, "query.invalid")
    is_problem(owner_api.get(f"{URL}?q=%00"), 400, "query.invalid")


def test_search_takes_wildcards_literally(owner_api, domain):
    assert owner_api.get(URL, {"q": "OD"}).json()["results"]
    assert not owner_api.get(URL, {"q": "%"}).json()["results"]


def test_foreign_team_is_not_found(owner_api, other_team, outsider, is_problem):
    body = {"name": "X", "team": other_team.slug}
    is_problem(owner_api.post(URL, body), 404, "team.not_found")
    is_problem(owner_api.get(URL, {"team": other_team.slug}), 404, "team.not_found")


def test_outsider_cannot_tell_that_it_exists(outsider_api, domain, is_problem):
    for ref in (domain.public_id, domain.slug, "dom_" + "a" * 26, "nothing"):
        is_problem(outsider_api.get(f"{URL}/{ref}"), 404, "domain.not_found")


def test_viewer_and_read_token_may_not_create(teammate_api, read_api, is_problem):
    is_problem(teammate_api.post(URL, {"name": "X"}), 403, "access.role")
    is_problem(read_api.post(URL, {"name": "X"}), 403, "access.scope")
    assert not Domain.objects.exists()


def test_nobody_gets_in_without_signing_in(anonymous_api, is_problem):
    response = anonymous_api.get(URL)
    is_problem(response, 401, "auth.missing")
    assert response["WWW-Authenticate"].startswith("Bearer")


def test_other_methods_are_refused(owner_api, domain, is_problem):
    response = owner_api.put(URL, {})
    is_problem(response, 405, "http.method_not_allowed")
    assert owner_api.options(URL).status_code == 200


def test_one_key_makes_one_domain(owner_api, is_problem):
    first = owner_api.post(URL, {"name": "Code"}, HTTP_IDEMPOTENCY_KEY="k1")
    again = owner_api.post(URL, {"name": "Code"}, HTTP_IDEMPOTENCY_KEY="k1")
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json() == again.json()
    other = owner_api.post(URL, {"name": "Math"}, HTTP_IDEMPOTENCY_KEY="k1")
    is_problem(other, 422, "idempotency.mismatch")
    is_problem(
        owner_api.post(URL, {"name": "X"}, HTTP_IDEMPOTENCY_KEY="é x"), 400, "idempotency.bad_key"
    )


def test_failed_attempt_does_not_use_the_key_up(owner_api, is_problem):
    is_problem(
        owner_api.post(URL, {"name": "X", "slug": "BAD"}, HTTP_IDEMPOTENCY_KEY="k2"),
        422,
        "domain.invalid",
    )
    assert owner_api.post(URL, {"name": "X"}, HTTP_IDEMPOTENCY_KEY="k2").status_code == 201


def test_keys_of_two_tokens_do_not_meet(owner_api, outsider_api):
    one = owner_api.post(URL, {"name": "A"}, HTTP_IDEMPOTENCY_KEY="same")
    two = outsider_api.post(URL, {"name": "B"}, HTTP_IDEMPOTENCY_KEY="same")
    assert (one.json()["slug"], two.json()["slug"]) == ("a", "b")


@pytest.mark.parametrize(
    ("text", "status", "code"),
    [
        ('{"name": "x", "name": "y"}', 400, "input.malformed"),
        ('{"name": "x", "description": 1e400}', 400, "input.malformed"),
        ('{"name": "x", "description": NaN}', 400, "input.malformed"),
        ('{"name": ' + "9" * 5000 + "}", 400, "input.malformed"),
        ('{"name": ' + "[" * 100_000, 400, "input.malformed"),
        ('{"\\ud800": 1}', 422, "input.not_storable"),
        ('{"name": "\\udc00"}', 422, "input.not_storable"),
        ("\ufeff{}", 400, "input.malformed"),
    ],
)
def test_json_has_one_meaning_and_can_be_stored(owner_api, text, status, code, is_problem):
    is_problem(owner_api.post(URL, text, content_type="application/json"), status, code)
    assert not Domain.objects.exists()


def test_pair_of_surrogates_is_one_character(owner_api):
    body = '{"name": "Code", "description": "\\ud83d\\ude00"}'
    response = owner_api.post(URL, body, content_type="application/json")
    assert response.json()["description"] == "\N{GRINNING FACE}"


def test_domain_made_by_somebody_else_a_moment_ago_is_taken(team, domain, monkeypatch):
    from qualityhub.registry import services
    from qualityhub.registry.services import domain_ensure

    def slow(**fields):
        Domain.objects.create(team=team, slug="math", name="Math")
        return create(**fields)

    create = services.domain_create
    monkeypatch.setattr(services, "domain_create", slow)
    assert domain_ensure(team=team, slug="math", actor="x") == Domain.objects.get(slug="math")
