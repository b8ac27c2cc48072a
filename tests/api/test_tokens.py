from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from qualityhub.accounts.models import ApiToken
from qualityhub.accounts.services import token_create, token_revoke

pytestmark = pytest.mark.django_db
URL = "/api/v1/tokens"
ME = "/api/v1/teams/me"


def test_secret_is_shown_once_and_stored_nowhere(owner_api, anonymous_api):
    body = {"name": "ci", "scopes": ["environments:read"]}
    response = owner_api.post(URL, body)
    assert response.status_code == 201
    plain = response.json()["token"]
    token = ApiToken.objects.get(name="ci")
    assert plain.startswith(f"qh_{token.key}_")
    secret = plain.rpartition("_")[2]
    assert secret not in str(ApiToken.objects.filter(pk=token.pk).values().get())
    assert secret not in owner_api.get(URL).content.decode()
    anonymous_api.credentials(HTTP_AUTHORIZATION=f"Bearer {plain}")
    document = anonymous_api.get(ME).json()
    assert document["scopes"] == ["environments:read"]
    assert document["teams"][0]["role"] == "admin"


@pytest.mark.parametrize("change", ["expired", "revoked", "inactive", "left", "cut", "other"])
def test_dead_token_gets_nobody_in(make_user, team, anonymous_api, change, is_problem):
    user = make_user("x@example.org", team)
    token, plain = token_create(user=user, team=team, name="x", scopes=["environments:read"])
    status, code = 401, "auth.failed"
    if change == "expired":
        ApiToken.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    elif change == "revoked":
        token_revoke(token)
    elif change == "inactive":
        user.is_active = False
        user.save()
    elif change == "left":
        user.memberships.all().delete()
    elif change == "cut":
        plain = plain[:-1]
    else:
        plain = plain[:-1] + ("a" if plain[-1] != "a" else "b")
    anonymous_api.credentials(HTTP_AUTHORIZATION=f"Bearer {plain}")
    if change == "left":
        assert anonymous_api.get("/api/v1/domains").json()["results"] == []
        assert anonymous_api.get(ME).json()["teams"] == []
        return
    is_problem(anonymous_api.get(ME), status, code)


@pytest.mark.parametrize("header", ["Bearer", "Bearer x", "bearer qh_a_b", "Bearer " + "é" * 9])
def test_garbage_gets_nobody_in(anonymous_api, header, is_problem):
    response = anonymous_api.get(ME, HTTP_AUTHORIZATION=header.encode().decode("latin-1"))
    is_problem(response, 401, "auth.failed")


def test_last_use_is_written_once_a_minute(owner_api, django_assert_num_queries):
    owner_api.get(ME)
    first = ApiToken.objects.get().last_used_at
    assert first is not None
    owner_api.get(ME)
    assert ApiToken.objects.get().last_used_at == first
    ApiToken.objects.update(last_used_at=timezone.now() - timedelta(minutes=2))
    owner_api.get(ME)
    assert ApiToken.objects.get().last_used_at > first


def test_token_cannot_pass_on_what_it_lacks(make_api, owner, team, is_problem):
    api = make_api(owner, team, ["tokens:write", "environments:read"])
    assert api.post(URL, {"name": "a", "scopes": ["environments:read"]}).status_code == 201
    for scope in ("gates:write", "admin"):
        is_problem(api.post(URL, {"name": "b", "scopes": [scope]}), 403, "access.scope")


def test_browser_session_may_create_tokens_with_csrf_only(owner, client, is_problem):
    from django.test import Client

    strict = Client(enforce_csrf_checks=True)
    strict.force_login(owner)
    body = {"name": "ci", "scopes": ["admin"]}
    refused = strict.post(URL, body, content_type="application/json")
    is_problem(refused, 403, "access.forbidden")
    client.force_login(owner)
    assert client.post(URL, body, content_type="application/json").status_code == 201


@pytest.mark.parametrize(
    "body",
    [
        {"scopes": ["admin"]},
        {"name": "x", "scopes": []},
        {"name": "x", "scopes": ["root"]},
        {"name": "x", "scopes": "admin"},
        {"name": "x", "scopes": ["environments:read"], "expires_at": "tomorrow"},
        {"name": "x", "scopes": ["environments:read"], "expiry": None},
    ],
)
def test_bad_body_is_refused(owner_api, body, is_problem):
    is_problem(owner_api.post(URL, body), 422, "input.invalid")


def test_expiry_in_the_past_is_refused(owner_api, is_problem):
    body = {"name": "x", "scopes": ["environments:read"], "expires_at": "2020-01-01T00:00:00Z"}
    is_problem(owner_api.post(URL, body), 422, "token.expired")


def test_idempotency_key_is_refused_rather_than_ignored(owner_api, is_problem):
    body = {"name": "x", "scopes": ["environments:read"]}
    response = owner_api.post(URL, body, HTTP_IDEMPOTENCY_KEY="k")
    is_problem(response, 403, "idempotency.not_here")


def test_admin_lists_and_revokes_the_teams_tokens(owner_api, teammate_api, outsider_api):
    assert len(owner_api.get(URL).json()["results"]) == 2
    assert len(teammate_api.get(URL).json()["results"]) == 1
    mate = ApiToken.objects.get(user__email="teammate@example.org")
    assert owner_api.delete(f"{URL}/{mate.public_id}").status_code == 204
    assert owner_api.delete(f"{URL}/{mate.public_id}").status_code == 204
    assert teammate_api.get(URL).status_code == 401


def test_nobody_revokes_what_is_not_theirs(owner_api, teammate_api, outsider_api, is_problem):
    token = ApiToken.objects.get(user__email="owner@example.org")
    for api in (teammate_api, outsider_api):
        is_problem(api.delete(f"{URL}/{token.public_id}"), 404, "token.not_found")
    for ref in ("1", "tok_x", "tok_" + "a" * 26):
        is_problem(owner_api.delete(f"{URL}/{ref}"), 404, "token.not_found")


def test_wrong_scope_and_method_are_refused(read_api, owner_api, is_problem):
    is_problem(read_api.get(URL), 403, "access.scope")
    is_problem(read_api.post(URL, {}), 403, "access.scope")
    is_problem(owner_api.put(URL, {}), 405, "http.method_not_allowed")


def test_member_of_two_teams_names_one(make_user, team, other_team, client, is_problem):
    from qualityhub.accounts.choices import Role
    from qualityhub.accounts.services import membership_set

    user = make_user("both@example.org", team)
    membership_set(team=other_team, user=user, role=Role.VIEWER)
    client.force_login(user)
    body = {"name": "x", "scopes": ["environments:read"]}
    response = client.post(URL, body, content_type="application/json")
    is_problem(response, 422, "team.ambiguous")
    body["team"] = other_team.slug
    response = client.post(URL, body, content_type="application/json")
    assert response.json()["team"] == other_team.slug


def test_token_reaches_its_own_team_alone(make_user, team, other_team, make_api, environment):
    from qualityhub.accounts.choices import Role
    from qualityhub.accounts.services import membership_set

    user = make_user("both@example.org", team)
    membership_set(team=other_team, user=user, role=Role.VIEWER)
    api = make_api(user, other_team)
    assert api.get(f"/api/v1/environments/{environment.public_id}").status_code == 404
