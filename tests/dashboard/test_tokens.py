from __future__ import annotations

import re

import pytest

from qualityhub.accounts.models import ApiToken
from qualityhub.accounts.services import token_authenticate

pytestmark = pytest.mark.django_db
FORM = {"name": "nightly CI", "days": "90", "scopes": ["environments:read", "admission:read"]}


def test_a_new_token_is_shown_once_and_works(editor, contributor, team, text_of):
    page = text_of(editor.post("/tokens/", FORM))
    (plain,) = set(re.findall(r"qh_[a-z0-9]{12}_[A-Za-z0-9]{40}", page))
    token = token_authenticate(plain)
    assert token is not None
    assert (token.user, token.team, token.scopes) == (contributor, team, FORM["scopes"])
    assert token.expires_at is not None
    again = text_of(editor.get("/tokens/"))
    assert "nightly CI" in again
    assert plain not in again


def test_a_token_may_last_until_revoked(editor):
    editor.post("/tokens/", FORM | {"days": ""})
    assert ApiToken.objects.get().expires_at is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""},
        {"name": "  "},
        {"scopes": []},
        {"scopes": ["all"]},
        {"days": "7"},
        {"name": "x\0"},
    ],
)
def test_wrong_fields_are_named_and_nothing_is_made(editor, team, wrong):
    response = editor.post("/tokens/", FORM | wrong)
    assert response.status_code == 422
    assert b"problem" in response.content
    assert not ApiToken.objects.exists()


def test_another_teams_token_cannot_be_made(editor, other_team):
    response = editor.post("/tokens/", FORM | {"team": other_team.slug})
    assert response.status_code == 422
    assert not ApiToken.objects.exists()


def test_revoking_makes_it_useless(editor, contributor, team, make_token, text_of):
    plain = make_token(contributor, team)
    token = ApiToken.objects.get()
    response = editor.post(f"/tokens/{token.public_id}/revoke/", follow=True)
    assert "works no more" in text_of(response)
    assert "revoked" in text_of(response)
    assert token_authenticate(plain) is None


def test_others_tokens_are_neither_seen_nor_revoked(member, contributor, team, make_token):
    make_token(contributor, team)
    token = ApiToken.objects.get()
    assert b"for tests" not in member.get("/tokens/").content
    assert member.post(f"/tokens/{token.public_id}/revoke/").status_code == 404
    token.refresh_from_db()
    assert token.revoked_at is None


def test_administrators_see_and_revoke_their_teams(client, owner, contributor, team, make_token):
    make_token(contributor, team)
    client.force_login(owner)
    token = ApiToken.objects.get()
    assert b"contributor@example.org" in client.get("/tokens/").content
    assert client.post(f"/tokens/{token.public_id}/revoke/").status_code == 302
    token.refresh_from_db()
    assert token.revoked_at is not None


def test_names_are_shown_as_text(editor, hostile, text_of):
    editor.post("/tokens/", FORM | {"name": hostile})
    page = text_of(editor.get("/tokens/"))
    assert "<script>alert" not in page


def test_more_tokens_take_no_more_queries(editor, contributor, team, make_token, queries_of):
    make_token(contributor, team)
    few = queries_of(editor, "/tokens/")
    for _ in range(4):
        make_token(contributor, team)
    assert queries_of(editor, "/tokens/") == few <= 8
