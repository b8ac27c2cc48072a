"""Workers over REST: for operators, and what an inspection waits for, for its team."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from qualityhub.inspections.claims import batch_claim
from qualityhub.inspections.models import Inspection, Worker
from qualityhub.inspections.needs import Offer
from qualityhub.inspections.services import inspection_start
from qualityhub.inspections.workers import worker_beat

pytestmark = pytest.mark.django_db
ADDRESS = "/api/v1/workers"


@pytest.fixture
def operator_api(make_user, make_api, team):
    user = make_user("operator@example.org", team, "viewer")
    user.is_staff = True
    user.save()
    return make_api(user, team, ["admin"])


@pytest.fixture
def beat():
    def make(name="a@host", **offer):
        worker_beat(name, Offer(f"session of {name}", arch="x86_64", **offer), 2)
        return Worker.objects.get(name=name)

    return make


def test_operator_sees_who_lives_and_what_they_can_do(operator_api, beat, version):
    beat(engine=True, labels={"zone": "a"}, pythons=("3.12.1",), provider="bwrap")
    Worker.objects.filter(pk=beat("gone@host").pk).update(
        seen_at=timezone.now() - timedelta(minutes=2)
    )
    inspection = inspection_start(version=version, actor="owner@example.org")
    batch_claim("a@host:4711")
    first, second = operator_api.get(ADDRESS).json()["results"]
    assert (first["name"], first["live"], first["engine"]) == ("a@host", True, True)
    assert (first["labels"], first["pythons"]) == ({"zone": "a"}, ["3.12.1"])
    assert [batch["inspection"] for batch in first["batches"]] == [inspection.public_id]
    assert (second["name"], second["live"], second["batches"]) == ("gone@host", False, [])


def test_members_see_no_hosts_whatever_their_token(owner, team, make_api, beat, is_problem):
    beat()
    is_problem(make_api(owner, team, ["admin"]).get(ADDRESS), 403, "access.operator")


def test_operators_need_a_token_for_all(make_user, team, make_api, anonymous_api, is_problem):
    user = make_user("reader@example.org", team, "viewer")
    user.is_staff = True
    user.save()
    is_problem(make_api(user, team, ["environments:read"]).get(ADDRESS), 403, "access.scope")
    assert anonymous_api.get(ADDRESS).status_code == 401


def test_what_an_inspection_waits_for_is_said(owner_api, outsider_api, version):
    inspection = inspection_start(version=version, actor="owner@example.org")
    address = f"/api/v1/inspections/{inspection.public_id}"
    assert owner_api.get(address).json()["waiting"] is None
    Inspection.objects.update(
        waits_for="It needs a worker with 1 GPU; none was seen for 10 min.",
        waits_since=timezone.now(),
    )
    waiting = owner_api.get(address).json()["waiting"]
    assert waiting["reason"].startswith("It needs a worker with 1 GPU")
    assert waiting["since"]
    assert outsider_api.get(address).status_code == 404
