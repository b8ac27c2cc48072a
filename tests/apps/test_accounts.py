from __future__ import annotations

import io
import json
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from qualityhub.accounts.choices import Role
from qualityhub.accounts.models import Membership, SignInLink, Team, User
from qualityhub.accounts.services import (
    first_run_ensure,
    membership_set,
    sign_in_link_create,
    sign_in_links_purge,
    team_create,
    user_create,
)
from qualityhub.engine.errors import ConflictError, InvalidInputError
from qualityhub.platform.audit import AuditEvent

pytestmark = pytest.mark.django_db


def test_opening_a_link_uses_nothing_up_and_a_click_signs_in(client, owner):
    url = sign_in_link_create(owner)
    for _ in range(2):
        page = client.get(url)
        assert page.status_code == 200
        assert "owner@example.org" in page.content.decode()
        assert "_auth_user_id" not in client.session
    assert client.post(url).status_code == 302
    assert client.session["_auth_user_id"] == str(owner.pk)
    assert AuditEvent.objects.get(action="user.signed_in").actor == "owner@example.org"


def test_link_works_once(client, owner):
    url = sign_in_link_create(owner)
    client.post(url)
    other = Client()
    assert other.get(url).status_code == 404
    assert other.post(url).status_code == 404
    assert "_auth_user_id" not in other.session


@pytest.mark.parametrize("change", ["expired", "inactive"])
def test_dead_link_signs_nobody_in(client, owner, change):
    url = sign_in_link_create(owner)
    if change == "expired":
        SignInLink.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    else:
        User.objects.update(is_active=False)
    assert client.post(url).status_code == 404
    assert "_auth_user_id" not in client.session


@pytest.mark.parametrize("secret", ["x", "é", "a" * 300, "%00"])
def test_made_up_link_signs_nobody_in(client, secret):
    assert client.get(f"/sign-in/{secret}/").status_code == 404
    assert client.post(f"/sign-in/{secret}/").status_code == 404


def test_sign_in_leads_to_the_page_that_was_asked_for(client, owner):
    asked = client.get("/gates/?verdict=block")
    assert asked.status_code == 302
    assert client.get(asked["Location"]).status_code == 200
    url = sign_in_link_create(owner)
    client.get(url)
    assert client.post(url)["Location"] == "/gates/?verdict=block"
    assert not client.cookies["qh_next"].value
    client.post("/sign-out/")
    assert client.post(sign_in_link_create(owner))["Location"] == "/"


def test_who_is_signed_in_goes_on_at_once(client, owner):
    client.force_login(owner)
    assert client.get("/sign-in/", {"next": "/gates/"})["Location"] == "/gates/"
    assert client.get("/sign-in/", {"next": "//evil.example/"})["Location"] == "/"


@pytest.mark.parametrize(
    "target",
    [
        "https://evil.example/",
        "//evil.example/",
        "/\\evil.example/",
        "///evil.example",
        "javascript:alert(1)",
        "gates/",
        "\t//evil.example",
        "/" + "x" * 3000,
    ],
)
def test_sign_in_leads_to_no_other_place(client, owner, target):
    client.get("/sign-in/", {"next": target})
    assert "qh_next" not in client.cookies
    # A cookie may come from elsewhere: it is looked at again.
    client.cookies["qh_next"] = target
    assert client.post(sign_in_link_create(owner))["Location"] == "/"


def test_a_page_asked_for_cannot_split_the_answer(client, owner):
    client.get("/sign-in/", {"next": "/gates/\r\nSet-Cookie: a=b"})
    where = client.post(sign_in_link_create(owner))["Location"]
    assert "\n" not in where
    assert "\r" not in where


def test_link_secret_is_not_stored(owner):
    secret = sign_in_link_create(owner).split("/")[2]
    assert secret not in str(SignInLink.objects.values().get())


def test_sign_in_page_names_are_escaped(client, db):
    user = User.objects.create_user("<script>@example.org")
    page = client.get(sign_in_link_create(user)).content.decode()
    assert "<script>" not in page


def test_click_needs_the_csrf_token(owner):
    strict = Client(enforce_csrf_checks=True)
    assert strict.post(sign_in_link_create(owner)).status_code == 403


def test_sign_out_ends_the_session(client, owner):
    client.force_login(owner)
    assert client.get("/sign-out/").status_code == 405
    assert client.post("/sign-out/")["Location"] == "/sign-in/"
    assert "_auth_user_id" not in client.session
    assert client.get("/sign-in/").status_code == 200


def test_session_cookies_are_closed_to_scripts(client, owner):
    client.post(sign_in_link_create(owner))
    cookie = client.cookies["qh_session"]
    assert cookie["httponly"]
    assert cookie["samesite"] == "Lax"


def test_expired_links_are_forgotten(owner):
    sign_in_link_create(owner)
    SignInLink.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    sign_in_link_create(owner)
    assert sign_in_links_purge() == 1
    assert SignInLink.objects.count() == 1


def test_first_run_is_made_once():
    first = first_run_ensure("Admin@Example.org", "My Lab")
    again = first_run_ensure("admin@example.org", "My Lab")
    assert (first.created, again.created) == (True, False)
    assert (first.user, first.team) == (again.user, again.team)
    assert Membership.objects.get().role == Role.ADMIN
    assert (User.objects.count(), Team.objects.count()) == (1, 1)


def test_first_run_command_prints_a_working_link(client):
    out = io.StringIO()
    call_command("first_run", email="a@example.org", team="Lab", stdout=out)
    document = json.loads(out.getvalue())
    assert (document["team"], document["created"]) == ("lab", True)
    path = document["sign_in_url"].removeprefix("http://127.0.0.1:8000")
    assert client.post(path).status_code == 302
    with pytest.raises(CommandError, match="no e-mail"):
        call_command("first_run", email="nobody", stdout=out)


def test_link_command_knows_people_only(owner):
    out = io.StringIO()
    call_command("sign_in_link", "OWNER@example.org", stdout=out)
    assert "/sign-in/" in out.getvalue()
    with pytest.raises(CommandError, match="Nobody"):
        call_command("sign_in_link", "who@example.org")


def test_addresses_are_unique_in_any_case(db):
    user_create(email="A@example.org")
    with pytest.raises(ConflictError):
        user_create(email="a@EXAMPLE.org")
    with pytest.raises(InvalidInputError):
        user_create(email="no address")


def test_teams_need_a_usable_unique_slug(team):
    with pytest.raises(ConflictError):
        team_create(name="Red Lab")
    with pytest.raises(InvalidInputError):
        team_create(name="日本")
    with pytest.raises(InvalidInputError):
        team_create(name="X", slug="a/b")


def test_change_of_role_is_recorded(team, teammate):
    membership_set(team=team, user=teammate, role=Role.ADMIN, actor="owner@example.org")
    event = AuditEvent.objects.filter(action="membership.set").latest("id")
    assert (event.before, event.after) == ({"role": "viewer"}, {"role": "admin"})
    assert Membership.objects.get(user=teammate).role == Role.ADMIN


def test_roles_include_smaller_ones():
    assert Role.ADMIN.includes(Role.VIEWER)
    assert Role.GATEKEEPER.includes(Role.CONTRIBUTOR)
    assert not Role.CONTRIBUTOR.includes(Role.GATEKEEPER)
