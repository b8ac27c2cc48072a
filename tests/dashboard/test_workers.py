"""The page of workers, and how an inspection looks that waits for one."""

from __future__ import annotations

import pytest
from django.utils import timezone

from qualityhub.inspections.models import Inspection
from qualityhub.inspections.needs import Offer
from qualityhub.inspections.services import inspection_start
from qualityhub.inspections.workers import worker_beat, worker_paused

pytestmark = pytest.mark.django_db
REASON = "It needs a worker with a container engine; none was seen for 10 min."


@pytest.fixture
def operator(client, make_user, team):
    user = make_user("operator@example.org", team, "viewer")
    user.is_staff = True
    user.save()
    client.force_login(user)
    return client


@pytest.fixture
def waiting(version):
    inspection = inspection_start(version=version, actor="owner@example.org")
    Inspection.objects.update(waits_for=REASON, waits_since=timezone.now())
    return inspection


def test_operator_sees_workers_and_what_waits(operator, waiting, hostile):
    worker_beat("a@host", Offer("s", arch="x86_64", provider="bwrap", labels={"zone": hostile}), 2)
    text = operator.get("/workers/").content.decode()
    assert "a@host" in text
    assert REASON in text
    assert "<script>alert" not in text
    assert 'href="/workers/"' in text


def test_a_worker_that_pauses_says_why(operator):
    worker_beat("a@host", Offer("s", arch="x86_64", provider="bwrap"), 2)
    assert "pauses" not in operator.get("/workers/").content.decode()
    worker_paused("s", "OSError: <b>no space</b> left", 60)
    assert "pauses: OSError: &lt;b&gt;no space" in operator.get("/workers/").content.decode()


def test_page_without_workers_says_so(operator):
    assert "No worker has shown itself yet" in operator.get("/workers/").content.decode()


def test_members_neither_see_it_nor_a_link_to_it(member):
    assert member.get("/workers/").status_code == 403
    assert 'href="/workers/"' not in member.get("/").content.decode()


def test_workers_take_few_queries(operator, waiting, django_assert_max_num_queries):
    for number in range(20):
        worker_beat(f"w{number}@host", Offer(str(number), arch="x86_64"), 2)
    with django_assert_max_num_queries(15):
        operator.get("/workers/")


def test_inspection_that_waits_is_pending_with_its_reason(member, waiting):
    page = member.get(f"/inspections/{waiting.public_id}/").content.decode()
    assert f"Pending: {REASON}" in page
    progress = member.get(f"/inspections/{waiting.public_id}/progress.json").json()
    assert progress["message"] == f"Pending: {REASON}"
    assert ">pending<" in member.get("/inspections/").content.decode().replace("</svg>", ">")
