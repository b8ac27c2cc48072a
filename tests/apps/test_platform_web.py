from __future__ import annotations

import logging

import pytest
from django.db import IntegrityError
from django.http import Http404
from django.test import Client

from qualityhub.engine import errors
from qualityhub.platform import health, logs, problems
from qualityhub.platform.heartbeats import HeartbeatKind, heartbeat, heartbeats_purge
from qualityhub.platform.requestid import bind_request_id


def test_every_answer_carries_a_request_id_and_the_policy(client):
    response = client.get("/healthz", headers={"X-Request-ID": "from-proxy.1"})
    assert response["X-Request-ID"] == "from-proxy.1"
    assert "script-src 'self'" in response["Content-Security-Policy"]
    assert "unsafe-eval" not in response["Content-Security-Policy"]
    assert response["X-Content-Type-Options"] == "nosniff"
    assert response["X-Frame-Options"] == "DENY"


@pytest.mark.parametrize("wanted", ["", "a b", "x" * 65, "new\tline", "é"])
def test_unfit_request_id_is_replaced(client, wanted):
    response = client.get("/healthz", headers={"X-Request-ID": wanted.encode().decode("latin-1")})
    assert len(response["X-Request-ID"]) == 16


def test_unknown_path_is_a_problem_below_api_and_a_page_elsewhere(client, db):
    response = client.get("/api/v1/nothing")
    assert response.status_code == 404
    assert response["Content-Type"] == "application/problem+json"
    assert response["API-Version"] == "1"
    assert response.json()["code"] == "access.not_found"
    assert client.get("/api")["Content-Type"] == "application/problem+json"
    page = client.get("/no/such/page")
    assert page.status_code == 404
    assert page["Content-Type"].startswith("text/")


def test_foreign_host_is_refused(client, db):
    response = client.get("/api/v1/teams/me", headers={"Host": "evil.example"})
    assert response.status_code == 400


def test_plotly_script_is_served_from_the_installed_package(client, db):
    from django.contrib.staticfiles import finders

    path = finders.find("plotly/plotly.min.js")
    assert path.endswith("package_data/plotly.min.js")
    assert finders.find("plotly/../plotly.min.js") is None
    listed = [
        name
        for finder in finders.get_finders()
        for name, storage in finder.list(None)
        if getattr(storage, "prefix", "") == "plotly"
    ]
    assert listed == ["plotly.min.js"]
    response = client.get("/static/plotly/plotly.min.js")
    assert response.status_code == 200
    response.close()


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (errors.NotFoundError("a.b", "m"), 404, "a.b"),
        (errors.ForbiddenError("a.b", "m"), 403, "a.b"),
        (errors.ConflictError("a.b", "m"), 409, "a.b"),
        (errors.LimitExceededError("a.b", "m"), 413, "a.b"),
        (errors.UnreadablePackageError("a.b", "m"), 422, "a.b"),
        (errors.SandboxUnavailableError("a.b", "m"), 503, "a.b"),
        (errors.MachineryError("a.b", "m"), 500, "a.b"),
        (problems.BadQueryError("a.b", "m"), 400, "a.b"),
        (Http404(), 404, "access.not_found"),
        (IntegrityError("secret row"), 409, "state.conflict"),
        (RuntimeError("secret detail"), 500, "machinery.unexpected"),
    ],
)
def test_every_kind_of_error_has_its_status_and_code(error, status, code):
    problem = problems.problem_of(error)
    assert (problem.status, problem.code) == (status, code)
    assert "secret" not in str(problem.document("/x"))


def test_what_nobody_foresaw_is_logged_with_its_request_id(
    monkeypatch, owner_api, caplog, is_problem_
):
    def broken(*_args, **_kwargs):
        raise ZeroDivisionError("inner detail")

    monkeypatch.setattr("qualityhub.api.v1.registry.selectors.domain_list", broken)
    with caplog.at_level(logging.ERROR):
        response = owner_api.get("/api/v1/domains")
    assert response.status_code == 500
    assert "inner detail" not in response.content.decode()
    assert is_problem_(response)["code"] == "machinery.unexpected"
    assert any(
        record.exc_info and "inner detail" in str(record.exc_info[1]) for record in caplog.records
    )


@pytest.fixture
def is_problem_():
    def check(response):
        assert response["Content-Type"] == "application/problem+json"
        return response.json()

    return check


def test_log_lines_keep_foreign_text_on_one_line():
    bind_request_id("r1")
    record = logging.LogRecord("qh", logging.INFO, "f", 1, "a\x1b[31m\nb %s", ("c\u202e",), None)
    record.fields = {"task": "x\ny"}
    logs.RequestFilter().filter(record)
    line = logs.LineFormatter().format(record)
    assert line.count("\n") == 0
    assert "\x1b" not in line
    assert "\u202e" not in line
    assert " INFO qh r1 a\\u001b[31m\\nb c\\u202e" in line
    assert 'task="x\\ny"' in line


@pytest.mark.django_db
def test_ready_only_when_everything_is_there(client, monkeypatch):
    monkeypatch.setattr(health, "broker_ping", lambda: None)
    document = client.get("/readyz").json()
    assert document["ready"] is False
    assert document["checks"]["database"]["ok"]
    assert document["checks"]["migrations"]["ok"]
    assert document["checks"]["worker"] == {"ok": False, "detail": "never seen"}
    heartbeat("w1", HeartbeatKind.WORKER, {"arch": "x86_64"})
    heartbeat("w1", HeartbeatKind.WORKER)
    heartbeat("beat", HeartbeatKind.BEAT)
    response = client.get("/readyz")
    assert response.status_code == 200
    assert (response.json()["ready"], response.json()["workers"]) == (True, 1)


@pytest.mark.django_db
def test_silent_worker_makes_it_unready(client, monkeypatch):
    from datetime import timedelta

    from django.utils import timezone

    from qualityhub.platform.heartbeats import Heartbeat

    monkeypatch.setattr(health, "broker_ping", lambda: None)
    heartbeat("beat", HeartbeatKind.BEAT)
    heartbeat("w1", HeartbeatKind.WORKER)
    Heartbeat.objects.filter(name="w1").update(seen_at=timezone.now() - timedelta(seconds=90))
    response = client.get("/readyz")
    assert response.status_code == 503
    assert response.json()["checks"]["worker"]["detail"].startswith("silent for 9")
    assert heartbeats_purge(timedelta(seconds=60)) == 1


@pytest.mark.django_db
def test_unreachable_broker_is_named_without_its_address(client, settings):
    from qualityhub.platform import queue

    settings.QH_BROKER_URL = "redis://:hidden-password@127.0.0.1:1/0"
    queue.producer.cache_clear()
    try:
        response = client.get("/readyz")
    finally:
        queue.producer.cache_clear()
    assert response.json()["checks"]["broker"]["ok"] is False
    assert "hidden-password" not in response.content.decode()


def test_health_asks_nobody(client):
    # No database fixture: any query would fail the test.
    assert client.get("/healthz").content == b"ok\n"
    assert client.post("/healthz").status_code == 405


def test_pages_refuse_posts_without_csrf_token(db):
    assert Client(enforce_csrf_checks=True).post("/sign-out/").status_code == 403
