from __future__ import annotations

import pytest

from qualityhub.registry.models import Domain, Environment

pytestmark = pytest.mark.django_db


def test_an_empty_hub_says_what_to_do_next(editor, team, text_of):
    page = text_of(editor.get("/"))
    assert "Nothing here yet" in page
    assert "qualityhub push path/to/environment" in page
    assert "/upload/" in page


def test_viewers_are_not_offered_an_upload(member, team):
    assert b"/upload/" not in member.get("/").content


def test_domains_are_shown_with_their_verdicts_in_words(member, version, inspected, text_of):
    inspected(version)
    page = text_of(member.get("/"))
    assert "1 partly admitted" in page
    assert "1 quarantined" in page
    assert "1 error" in page


def test_counts_are_those_of_the_newest_version(member, make_version, inspected, text_of):
    inspected(make_version(), "rejected", quarantined=("t1", "t2"))
    inspected(make_version(), "admitted", findings=(), quarantined=())
    page = text_of(member.get("/"))
    assert "1 admitted" in page
    assert "1 rejected" not in page
    assert "quarantined</div>" not in page


def test_the_latest_gate_names_what_got_worse(member, gate_of, text_of):
    gate_of({"code": (0.6, 0.6), "math": (0.9, 0.4)})
    page = text_of(member.get("/"))
    assert "Latest gate" in page
    card = page[page.index("Latest gate") : page.index('id="domains"')]
    assert "block" in card
    assert "domain=math#details" in card
    assert "domain=code#details" not in card
    assert "−50.0 points" in card  # noqa: RUF001


def test_a_gate_that_waits_is_shown_as_waiting(member, gate_of, text_of, team):
    from qualityhub.gates.models import EvalRun
    from qualityhub.gates.services import gate_start

    gate_of({"code": (0.6, 0.6)})
    runs = {run.checkpoint.name: run for run in EvalRun.objects.select_related("checkpoint")}
    gate_start(team=team, candidate=[runs["step-1"]], baseline=[runs["base-1"]])
    assert "waiting" in text_of(member.get("/"))


def test_silent_workers_are_named_while_something_waits(member, version, text_of):
    from qualityhub.inspections.services import inspection_start
    from qualityhub.platform.heartbeats import HeartbeatKind, heartbeat

    inspection_start(version=version, actor="x")
    assert "No worker answers" in text_of(member.get("/"))
    heartbeat("worker-1", HeartbeatKind.WORKER)
    assert "No worker answers" not in text_of(member.get("/"))


def test_more_domains_take_no_more_queries(
    *, member, team, version, inspected, gate_of, queries_of, make_version
):
    inspected(version)
    gate_of({"code": (0.9, 0.5)})
    few = queries_of(member, "/")
    for number in range(8):
        domain = Domain.objects.create(team=team, slug=f"d{number}", name=f"D {number}")
        row = Environment.objects.create(team=team, domain=domain, slug="e", name="E")
        inspected(make_version(environment=row))
    assert queries_of(member, "/") == few <= 15


def test_names_are_shown_as_text(member, team, text_of, hostile):
    Domain.objects.create(team=team, slug="x", name=hostile)
    page = text_of(member.get("/"))
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;\\x1b[31m\\u202egpj" in page


def test_domains_of_several_teams_are_told_apart(member, teammate, other_team, team, text_of):
    from qualityhub.accounts.choices import Role
    from qualityhub.accounts.services import membership_set

    membership_set(team=other_team, user=teammate, role=Role.VIEWER)
    rows = [
        Domain.objects.create(team=owner, slug="code", name="Code") for owner in (team, other_team)
    ]
    page = text_of(member.get("/"))
    for row in rows:
        assert f"/domains/{row.public_id}/" in page
        assert row.team.name in page
        assert member.get(f"/domains/{row.public_id}/").status_code == 200


def test_many_domains_come_in_pages_and_are_found_by_name(member, team, text_of):
    Domain.objects.bulk_create(
        Domain(team=team, slug=f"d{number:03}", name=f"Field {number:03}") for number in range(130)
    )
    page = text_of(member.get("/"))
    assert "1 to 100 of 130" in page
    assert "Field 099" in page
    assert "Field 100" not in page
    assert "Field 129" in text_of(member.get("/", {"page": "2"}))
    shown = member.get("/", {"q": "FIELD 12"}).context["page"].rows
    assert [row.overview.domain.slug for row in shown] == [f"d{n}" for n in range(120, 130)]
    assert "No domain matches" in text_of(member.get("/", {"q": "nothing"}))
