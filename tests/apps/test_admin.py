from __future__ import annotations

import pytest
from django.contrib import admin

pytestmark = pytest.mark.django_db


@pytest.fixture
def operator(client):
    from qualityhub.accounts.services import user_create

    client.force_login(user_create(email="op@example.org", operator=True))
    return client


def test_operator_looks_at_every_table_and_changes_none(operator, version, owner, read_api):
    read_api.get("/api/v1/teams/me")
    for model in admin.site._registry:
        if not model.__module__.startswith("qualityhub.") or model._meta.app_label not in {
            "accounts",
            "registry",
            "qh_platform",
        }:
            continue
        url = f"/admin/{model._meta.app_label}/{model._meta.model_name}/"
        assert operator.get(url).status_code == 200, url
        assert operator.get(f"{url}add/").status_code == 403, url


def test_what_secrets_are_checked_against_is_not_shown(operator, owner, read_api):
    token = owner.tokens.get()
    page = operator.get(f"/admin/accounts/apitoken/{token.pk}/change/").content.decode()
    assert token.name in page
    assert token.digest not in page


def test_others_stay_outside(client, owner):
    client.force_login(owner)
    assert client.get("/admin/accounts/user/").status_code == 302
