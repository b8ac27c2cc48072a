"""Every page asks for a sign-in, and says nothing to those outside the team."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.django_db
LISTS = (
    "/",
    "/inspections/",
    "/gates/",
    "/rules/",
    "/rules/VER001/",
    "/audits/",
    "/checkpoints/",
    "/tokens/",
    "/upload/",
)


@pytest.fixture
def own_pages(version, inspected, gate_of):
    inspection = inspected(version)
    gate = gate_of({"code": (0.9, 0.5)})
    environment = version.environment
    return [
        f"/domains/{environment.domain.slug}/",
        f"/domains/{environment.domain.public_id}/",
        f"/environments/{environment.public_id}/",
        f"/inspections/{inspection.public_id}/",
        f"/inspections/{inspection.public_id}/findings/",
        f"/inspections/{inspection.public_id}/progress.json",
        f"/inspections/{inspection.public_id}/report.json",
        f"/inspections/{inspection.public_id}/report.sarif",
        f"/inspections/{inspection.public_id}/report.md",
        f"/gates/{gate.public_id}/",
        f"/gates/{gate.public_id}/figure.json",
        f"/gates/{gate.public_id}/report.json",
    ]


def test_without_sign_in_every_page_leads_to_it_and_back(client, own_pages):
    for path in (*LISTS, *own_pages):
        response = client.get(path)
        assert response.status_code == 302, path
        assert response["Location"] == f"/sign-in/?next={path}"


def test_members_see_their_pages(member, own_pages):
    assert [path for path in own_pages if member.get(path).status_code != 200] == []


def test_outsiders_are_told_that_there_is_nothing(stranger, own_pages):
    for path in own_pages:
        response = stranger.get(path)
        assert response.status_code == 404, path
        assert b"There is no such page" in response.content


def test_outsiders_lists_hold_nothing_of_the_team(stranger, own_pages):
    for path in LISTS:
        response = stranger.get(path)
        assert response.status_code == 200, path
        for word in ("Sums", "base-1", "step-1", "env_", "insp_", "gate_"):
            assert word not in response.content.decode(), (path, word)


def test_what_is_no_id_is_not_found_either(member, team):
    for path in (
        "/domains/none/",
        "/environments/env_x/",
        "/inspections/insp_x/",
        "/gates/nope/",
        "/rules/ABC999/",
        "/nowhere/",
    ):
        assert member.get(path).status_code == 404, path


def test_pages_are_kept_in_no_cache(member, team):
    assert "no-store" in member.get("/")["Cache-Control"]


def test_only_posts_change_things(editor, version, inspected):
    inspection = inspected(version)
    for path in (
        f"/environments/{version.environment.public_id}/inspect/",
        f"/inspections/{inspection.public_id}/cancel/",
        "/tokens/tok_x/revoke/",
    ):
        assert editor.get(path).status_code == 405, path


def test_posts_need_the_token_of_the_form(contributor, version):
    from django.test import Client

    strict = Client(enforce_csrf_checks=True)
    strict.force_login(contributor)
    path = f"/environments/{version.environment.public_id}/inspect/"
    assert strict.post(path).status_code == 403
