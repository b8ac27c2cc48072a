from __future__ import annotations

import json
import stat

import httpx
import pytest

from qualityhub.client import QualityHubClient
from qualityhub.client.config import config_file, read_login
from qualityhub.client.transport import Transport


class FakeHub:
    """A hub in memory: routes by method and path, records requests."""

    def __init__(self):
        self.routes = {}
        self.requests = []

    def on(self, method, path, *answers, status=200, headers=None):
        self.routes[method, f"/api/v1/{path}"] = [
            httpx.Response(status, json=answer, headers=headers) for answer in answers
        ]

    def __call__(self, request):
        request.read()
        self.requests.append(request)
        answers = self.routes.get((request.method, request.url.path))
        if answers is None:
            return httpx.Response(
                404, json={"code": "access.not_found", "detail": "There is no such thing here."}
            )
        return answers.pop(0) if len(answers) > 1 else answers[0]

    def asked(self, method, path):
        return [
            item
            for item in self.requests
            if (item.method, item.url.path) == (method, f"/api/v1/{path}")
        ]


@pytest.fixture
def hub(monkeypatch, call):
    fake = FakeHub()
    opened = []

    def transport(url, token="", **given):
        opened.append((url, token))
        return Transport(url, token, transport=httpx.MockTransport(fake), sleep=lambda _: None)

    monkeypatch.setattr("qualityhub.client.api.Transport", transport)
    monkeypatch.setattr("time.sleep", lambda _: None)
    monkeypatch.setenv("QH_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("QH_TOKEN", "qh_env")
    fake.opened = opened
    return fake


JOB = {
    "id": "job_1",
    "kind": "inspect",
    "status": "queued",
    "object": "insp_1",
    "progress": {"done": 0, "total": 0, "message": ""},
    "result": None,
    "error": None,
}
DONE = {**JOB, "status": "succeeded"}
VERSION = {"id": "ver_1", "digest": "qh1:v", "name": "demo"}


def ready(hub, report):
    hub.on("GET", "environments", {"results": [{"id": "env_1"}], "next": None})
    hub.on("POST", "environments/env_1/versions", VERSION, status=201)
    hub.on("POST", "versions/ver_1/inspect", JOB, status=202)
    hub.on("GET", "jobs/job_1", JOB, DONE)
    hub.on("GET", "inspections/insp_1/report", report)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "scorer.py").write_text("x\n")
    return tmp_path / "demo"


# login


def test_login_checks_the_token_and_remembers_it_for_its_owner(call, hub, monkeypatch):
    hub.on("GET", "teams/me", {"user": "ann@example.org"})
    result = call("login", "http://127.0.0.1:9/", "--token", "qh_1")
    assert result.code == 0
    assert "ann@example.org" in result.err
    assert "qh_1" not in result.err + result.out
    assert stat.S_IMODE(config_file().stat().st_mode) == 0o600
    assert (read_login().url, read_login().token) == ("http://127.0.0.1:9", "qh_1")
    monkeypatch.delenv("QH_URL")
    monkeypatch.delenv("QH_TOKEN")
    hub.on("GET", "jobs/job_1", DONE)
    hub.on("GET", "inspections/insp_1/report", {})
    call("wait", "job_1")
    assert hub.opened[-1] == ("http://127.0.0.1:9", "qh_1")


def test_a_refused_token_is_not_remembered(call, hub):
    hub.on(
        "GET", "teams/me", {"code": "auth.failed", "detail": "The token is unknown."}, status=401
    )
    result = call("login", "http://127.0.0.1:9", "--token", "qh_bad")
    assert result.code == 2
    assert "The token is unknown." in result.err
    assert read_login() is None


def test_a_remembered_token_is_sent_to_its_own_hub_only(call, hub, monkeypatch):
    hub.on("GET", "teams/me", {"user": "a"})
    call("login", "http://127.0.0.1:9", "--token", "qh_1")
    monkeypatch.delenv("QH_TOKEN")
    monkeypatch.setenv("QH_URL", "http://127.0.0.1:10")
    call("wait", "job_1")
    assert hub.opened[-1] == ("http://127.0.0.1:10", "")


def test_without_any_hub_the_way_out_is_named(call, monkeypatch):
    result = call("wait", "job_1")
    assert result.code == 2
    assert "qualityhub login" in result.err


# push and wait


def test_push_uploads_a_folder_and_starts_an_inspection(call, hub, folder, make_report):
    ready(hub, make_report().as_json())
    result = call("push", folder, "--domain", "code", "--format", "json")
    assert result.code == 0
    assert result.json["schema"] == "qualityhub.push/1"
    assert result.json["job"]["id"] == "job_1"
    (listing,) = hub.asked("GET", "environments")
    assert dict(listing.url.params) == {"domain": "code", "name": "demo"}
    (upload,) = hub.asked("POST", "environments/env_1/versions")
    assert b'filename="demo.tar.gz"' in upload.content
    assert upload.headers["Authorization"] == "Bearer qh_env"
    assert hub.asked("GET", "jobs/job_1") == []


@pytest.mark.parametrize(("verdict", "code"), [("admitted", 0), ("pending", 3), ("error", 4)])
def test_push_and_wait_exit_as_inspect_does(  # noqa: PLR0917 - fixtures come by name.
    call, hub, folder, make_report, verdict, code
):
    ready(hub, make_report(verdict=verdict).as_json())
    result = call("push", folder, "--domain", "code", "--wait", "--format", "json")
    assert result.code == code
    assert result.json["verdict"] == verdict


def test_push_creates_the_environment_and_the_domain_when_asked(call, hub, folder, make_report):
    ready(hub, make_report().as_json())
    hub.on("GET", "environments", {"results": [], "next": None})
    hub.on("POST", "environments", {"id": "env_1"}, status=201)
    hub.on("POST", "domains", {"id": "dom_1"}, status=201)
    result = call("push", folder, "--domain", "code", "--create-domain", "--environment", "sums")
    assert result.code == 0
    assert json.loads(hub.asked("POST", "domains")[0].content) == {"name": "code", "slug": "code"}
    assert json.loads(hub.asked("POST", "environments")[0].content) == {
        "name": "sums",
        "domain": "code",
    }


def test_push_of_a_reference_sends_no_files(call, hub, make_report):
    ready(hub, make_report().as_json())
    assert call("push", "gymnasium:CartPole-v1", "--domain", "control").code == 0
    (upload,) = hub.asked("POST", "environments/env_1/versions")
    assert json.loads(upload.content) == {"source": "gymnasium:CartPole-v1"}
    assert dict(hub.asked("GET", "environments")[0].url.params)["name"] == "CartPole-v1"


def test_push_of_a_class_names_the_entry(call, hub, folder, make_report):
    ready(hub, make_report().as_json())
    assert call("push", f"{folder / 'scorer.py'}:Env", "--domain", "control").code == 0
    assert b"scorer.py:Env" in hub.asked("POST", "environments/env_1/versions")[0].content


def test_push_of_nothing_is_named_before_the_hub_is_asked(call, hub, tmp_path):
    result = call("push", tmp_path / "none", "--domain", "code")
    assert result.code == 2
    assert hub.requests == []


def test_a_refusal_of_the_hub_is_a_sentence_and_exit_2(call, hub, folder):
    result = call("push", folder, "--domain", "code")
    assert result.code == 2
    assert result.err == "error: There is no such thing here.\n"


@pytest.mark.parametrize(("status", "code"), [("failed", 1), ("errored", 4), ("cancelled", 4)])
def test_a_job_that_did_not_succeed_says_why(call, hub, status, code):
    hub.on(
        "GET",
        "jobs/job_1",
        {**JOB, "status": status, "error": {"code": "x.y", "message": "It \x1bbroke."}},
    )
    result = call("wait", "job_1")
    assert result.code == code
    assert "It \\x1bbroke." in result.out


def test_wait_takes_an_inspection_or_a_gate(call, hub, make_report):
    hub.on("GET", "inspections/insp_1", {"id": "insp_1", "job": "/api/v1/jobs/job_1"})
    hub.on("GET", "jobs/job_1", DONE)
    hub.on("GET", "inspections/insp_1/report", make_report().as_json())
    assert call("wait", "insp_1").code == 0
    hub.on("GET", "gates/gate_1", {"id": "gate_1", "job": "/api/v1/jobs/job_1"})
    hub.on("GET", "jobs/job_1", {**DONE, "object": "gate_1"})
    hub.on(
        "GET",
        "gates/gate_1/report",
        {"schema": "qualityhub.gate/1", "verdict": "block", "domains": []},
    )
    result = call("wait", "gate_1", "--format", "json")
    assert (result.code, result.json["verdict"]) == (1, "block")
    assert call("wait", "env_1").code == 2


def test_waiting_ends_after_the_time_given(call, hub):
    hub.on("GET", "jobs/job_1", JOB)
    result = call("wait", "job_1", "--timeout", "0.1s")
    assert result.code == 4
    assert "qualityhub wait job_1" in result.err


# admission


def test_admission_check_is_exit_1_when_one_is_refused(call, hub, tmp_path):
    hub.on(
        "POST",
        "admission/check",
        {
            "results": [
                {"digest": "qh1:a", "admitted": True},
                {"digest": "qh1:b", "admitted": False, "reason": "quarantined"},
            ]
        },
    )
    result = call("admission", "check", "qh1:a", "qh1:b")
    assert result.code == 1
    assert result.out.splitlines() == ["admitted  qh1:a", "refused   qh1:b  quarantined"]
    assert call("admission", "check", "qh1:a").code == 0
    listed = tmp_path / "digests"
    listed.write_text("qh1:a\n\nqh1:c\n")
    document = call("admission", "check", "--file", listed, "--format", "json")
    assert document.code == 1
    assert [row["admitted"] for row in document.json["results"]] == [True, False]
    assert call("admission", "check").code == 2


def test_the_manifest_is_printed_alone_and_not_again_when_it_did_not_change(call, hub):
    hub.on("GET", "admission/manifest", {"tasks": []}, headers={"ETag": '"v1"'})
    result = call("admission", "manifest")
    assert result.json == {"tasks": []}
    assert '"v1"' in result.err
    assert call("admission", "--manifest").json == {"tasks": []}
    hub.routes["GET", "/api/v1/admission/manifest"] = [httpx.Response(304)]
    result = call("admission", "manifest", "--etag", '"v1"')
    assert (result.code, result.out) == (0, "")
    assert call("admission").code == 2


# results


def test_results_are_pushed_and_the_run_sealed(call, hub, tmp_path):
    file = tmp_path / "rows.csv"
    file.write_text("task,attempt,reward\na,0,1\n")
    hub.on("POST", "eval-runs", {"id": "run_1"}, status=201)
    hub.on(
        "POST",
        "eval-runs/run_1/rollouts",
        {"received": 1, "inserted": 1, "duplicates": 0, "conflicts": [], "conflicts_total": 0},
    )
    hub.on("POST", "eval-runs/run_1/seal", {"id": "run_1"})
    result = call(
        "results", "push", "nightly", file, "--checkpoint", "ckpt_1", "--seal", "--format", "json"
    )
    assert result.code == 0
    assert result.json["inserted"] == 1
    assert result.json["sealed"] is True
    assert json.loads(hub.asked("POST", "eval-runs")[0].content) == {
        "checkpoint": "ckpt_1",
        "name": "nightly",
    }


def test_rows_that_contradict_stored_ones_are_exit_1_and_leave_the_run_open(call, hub, tmp_path):
    file = tmp_path / "rows.csv"
    file.write_text("task,attempt,reward\na,0,1\n")
    conflict = {"domain": "code", "task": "a", "attempt": 0, "line": 1, "reason": "content"}
    hub.on(
        "POST",
        "eval-runs/run_1/rollouts",
        {
            "received": 1,
            "inserted": 0,
            "duplicates": 0,
            "conflicts": [conflict],
            "conflicts_total": 1,
        },
    )
    result = call("results", "push", "run_1", file, "--seal")
    assert result.code == 1
    assert "code a attempt 0: content" in result.out
    assert hub.asked("POST", "eval-runs/run_1/seal") == []


def test_the_client_closes_its_connections():
    with QualityHubClient("http://127.0.0.1:9") as client:
        assert client.url == "http://127.0.0.1:9"
