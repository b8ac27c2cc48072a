from __future__ import annotations

import gzip
import io
import json
import os
import stat
import tarfile
import zlib

import httpx
import pytest

from qualityhub.client import QualityHubClient
from qualityhub.client.archive import packed
from qualityhub.client.config import (
    Login,
    checked_url,
    config_file,
    is_exposed,
    read_login,
    write_login,
)
from qualityhub.client.rollouts import parts
from qualityhub.client.transport import Transport, wait_s
from qualityhub.engine import errors
from qualityhub.engine.results.rows import RolloutRow


class Hub:
    """Answers requests from a script and records them."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.requests = []
        self.slept = []

    def __call__(self, request):
        request.read()
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def client(self, token="qh_secret"):
        transport = Transport(
            "https://hub.example/",
            token,
            transport=httpx.MockTransport(self),
            sleep=self.slept.append,
        )
        return QualityHubClient("https://hub.example/", token, transport=transport)


def ok(document=None, status=200, **headers):
    return httpx.Response(
        status, json={"id": "x"} if document is None else document, headers=headers
    )


def refused(status, code="a.b", **document):
    return httpx.Response(
        status,
        json={"code": code, "detail": "No.", **document},
        headers={"Content-Type": "application/problem+json"},
    )


def test_requests_carry_the_token_and_go_below_the_api():
    hub = Hub(ok({"user": "a@b"}))
    assert hub.client().me() == {"user": "a@b"}
    (request,) = hub.requests
    assert str(request.url) == "https://hub.example/api/v1/teams/me"
    assert request.headers["Authorization"] == "Bearer qh_secret"
    assert request.headers["User-Agent"].startswith("qualityhub/")


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, errors.ForbiddenError),
        (403, errors.ForbiddenError),
        (404, errors.NotFoundError),
        (409, errors.ConflictError),
        (413, errors.LimitExceededError),
        (422, errors.InvalidInputError),
        (400, errors.InvalidInputError),
        (500, errors.MachineryError),
    ],
)
def test_a_problem_document_becomes_our_error_with_code_and_hint(status, kind):
    hub = Hub(
        refused(
            status,
            hint="Do that.",
            errors=[{"pointer": "/name", "detail": "Too long."}],
            request_id="r1",
        )
    )
    with pytest.raises(kind) as error:
        hub.client().domain_create("x")
    assert error.value.code == "a.b"
    assert error.value.message == "No. name: Too long."
    assert "Do that." in error.value.hint
    assert ("r1" in error.value.hint) is (status >= 500)


def test_an_answer_that_is_no_problem_document_still_says_what_happened():
    hub = Hub(httpx.Response(418, text="<html>"))
    with pytest.raises(errors.InvalidInputError) as error:
        hub.client().me()
    assert error.value.code == "http.418"


def test_reads_are_retried_with_growing_waits():
    hub = Hub(refused(503), httpx.ConnectError("no"), httpx.ReadTimeout("slow"), ok())
    assert hub.client().me() == {"id": "x"}
    assert len(hub.requests) == 4
    assert hub.slept[0] < hub.slept[2]
    assert len(hub.slept) == 3


def test_retry_after_is_obeyed_up_to_a_bound():
    hub = Hub(httpx.Response(429, headers={"Retry-After": "7"}), ok())
    hub.client().me()
    assert hub.slept == [7.0]
    assert wait_s(0, "99999") == 30.0
    assert 0 < wait_s(50) <= 30.0


def test_a_post_is_retried_only_under_one_idempotency_key():
    hub = Hub(httpx.ReadTimeout("slow"), refused(409, "idempotency.in_progress"), ok())
    hub.client().domain_create("x")
    keys = {request.headers["Idempotency-Key"] for request in hub.requests}
    assert len(hub.requests) == 3
    assert len(keys) == 1
    hub = Hub(httpx.ReadTimeout("slow"), ok({"results": []}))
    with pytest.raises(errors.MachineryError):
        hub.client().admission_check(["qh1:a"])
    assert len(hub.requests) == 1


def test_a_refusal_is_not_retried():
    hub = Hub(refused(409), ok())
    with pytest.raises(errors.ConflictError):
        hub.client().domain_create("x")
    assert len(hub.requests) == 1


def test_an_unreachable_hub_is_our_machinery_after_all_tries():
    hub = Hub(*[httpx.ConnectError("refused")] * 6)
    with pytest.raises(errors.MachineryError) as error:
        hub.client().me()
    assert error.value.code == "hub.unreachable"
    assert len(hub.requests) == 6


def test_a_redirect_is_refused_so_that_the_token_stays_here():
    hub = Hub(httpx.Response(302, headers={"Location": "https://evil.example/"}))
    with pytest.raises(errors.InvalidInputError) as error:
        hub.client().me()
    assert error.value.code == "hub.redirect"
    assert len(hub.requests) == 1


def test_pages_are_followed_on_the_same_hub_only():
    hub = Hub(
        ok({"results": [{"id": "1"}], "next": "/api/v1/domains?cursor=c"}),
        ok({"results": [{"id": "2"}], "next": None}),
    )
    assert [row["id"] for row in hub.client().domains()] == ["1", "2"]
    assert hub.requests[1].url.query == b"cursor=c"
    hub = Hub(ok({"results": [], "next": "https://evil.example/"}))
    with pytest.raises(errors.MachineryError):
        list(hub.client().domains())


def test_ids_from_a_command_line_stay_one_path_segment():
    hub = Hub(ok())
    hub.client().job("../tokens?x=1#")
    assert hub.requests[0].url.raw_path == b"/api/v1/jobs/..%2Ftokens%3Fx%3D1%23"


def test_the_manifest_is_not_sent_again_when_it_did_not_change():
    hub = Hub(ok({"tasks": []}, ETag='"v1"'), httpx.Response(304))
    client = hub.client()
    first = client.admission_manifest(domain="code")
    assert (first.etag, first.document) == ('"v1"', {"tasks": []})
    assert client.admission_manifest(etag=first.etag).document is None
    assert hub.requests[1].headers["If-None-Match"] == '"v1"'


def test_digests_are_asked_in_requests_of_512():
    digests = [f"qh1:{number}" for number in range(1000)]
    hub = Hub(
        *[
            ok({"results": [{"digest": digest, "admitted": True} for digest in part]})
            for part in (digests[:512], digests[512:])
        ]
    )
    answers = hub.client().admission_check(digests)
    assert list(answers) == digests
    assert [len(json.loads(request.content)["digests"]) for request in hub.requests] == [512, 488]


def test_a_job_is_waited_for_until_it_has_ended():
    queued = {
        "id": "job_1",
        "kind": "inspect",
        "status": "queued",
        "progress": {"done": 0, "total": 0, "message": ""},
    }
    done = {
        **queued,
        "status": "succeeded",
        "object": "insp_1",
        "progress": {"done": 3, "total": 3, "message": ""},
    }
    hub = Hub(ok(queued), ok({**queued, "status": "running"}), ok(done))
    seen, slept = [], []
    job = hub.client().job_wait("job_1", on_progress=seen.append, sleep=slept.append)
    assert (job.status, job.object, job.done) == ("succeeded", "insp_1", 3)
    assert [item.status for item in seen] == ["queued", "running", "succeeded"]
    assert slept == [0.5, 0.75]
    hub = Hub(ok(queued))
    with pytest.raises(errors.MachineryError) as error:
        hub.client().job_wait("job_1", timeout_s=0.1, sleep=slept.append)
    assert error.value.code == "job.timeout"


# Rollouts


def rows(count, start=0):
    return [
        RolloutRow(task=f"t{index}", attempt=0, reward=0.5) for index in range(start, start + count)
    ]


def test_rows_are_cut_into_whole_lines_below_the_limit():
    found = list(parts("run_1", [rows(70), rows(30, 70)], limit=1000))
    assert sum(part.rows for part in found) == 100
    assert [part.number for part in found] == list(range(1, len(found) + 1))
    bodies = [gzip.decompress(part.body) for part in found]
    assert max(len(body) for body in bodies) <= 1000
    lines = b"".join(bodies).splitlines()
    assert [json.loads(line)["task"] for line in lines] == [f"t{index}" for index in range(100)]
    assert json.loads(lines[0]) == {"task": "t0", "attempt": 0, "reward": 0.5, "validity": "valid"}


def test_the_same_rows_have_the_same_keys_and_bodies_again():
    first, again, other = (
        list(parts(run, [rows(50)], limit=500)) for run in ("run_1", "run_1", "run_2")
    )
    assert first == again
    assert not {part.key for part in first} & {part.key for part in other}
    assert len({part.key for part in first}) == len(first)


def test_an_upload_sums_its_requests_and_survives_a_broken_connection(tmp_path):
    file = tmp_path / "rows.csv"
    file.write_text("task,attempt,reward\na,0,1\nb,0,0\n")
    answer = {
        "received": 2,
        "inserted": 1,
        "duplicates": 0,
        "conflicts": [{"task": "b"}],
        "conflicts_total": 1,
    }
    hub = Hub(httpx.ReadError("broken"), ok(answer))
    total = hub.client().rollouts_push("run_1", [file], create_domains=True)
    assert (total.received, total.inserted, total.conflicts, total.requests) == (2, 1, 1, 1)
    first, second = hub.requests
    assert first.content == second.content
    assert first.headers["Idempotency-Key"] == second.headers["Idempotency-Key"]
    assert second.headers["Content-Type"] == "application/x-ndjson"
    assert second.headers["Content-Encoding"] == "gzip"
    assert second.url.query == b"create_domains=true"
    assert zlib.decompress(second.content, 31).count(b"\n") == 2


def test_a_bad_row_is_named_with_file_and_line_before_it_is_sent(tmp_path):
    file = tmp_path / "rows.ndjson"
    file.write_text('{"task":"a","attempt":0,"reward":1}\n{"task":"b"}\n')
    hub = Hub()
    with pytest.raises(errors.InvalidInputError) as error:
        hub.client().rollouts_push("run_1", [file])
    assert "rows.ndjson:2" in error.value.message
    assert hub.requests == []


# Archives


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "env"
    (root / "sub").mkdir(parents=True)
    (root / ".git").mkdir()
    (root / ".git" / "config").write_text("secret")
    (root / "run.sh").write_text("#!/bin/sh\n")
    (root / "run.sh").chmod(0o755)
    (root / "sub" / "data").write_text("x")
    (root / "link").symlink_to("./sub//data")
    return root


def read(path):
    with packed(path) as archive:
        data = archive.read()
    return data, tarfile.open(fileobj=io.BytesIO(data))


def test_an_archive_holds_files_links_and_execute_bits_but_no_git(folder):
    _, archive = read(folder)
    assert archive.getnames() == ["link", "run.sh", "sub/data"]
    assert archive.getmember("link").linkname == "./sub//data"
    assert archive.getmember("run.sh").mode == 0o755
    assert archive.extractfile("sub/data").read() == b"x"


def test_the_same_files_give_the_same_archive_whenever_they_were_written(folder):
    first, _ = read(folder)
    os.utime(folder / "run.sh", (1, 1))
    (folder / "sub" / "data").chmod(0o600)
    assert read(folder)[0] == first


def test_one_file_is_an_archive_too(folder):
    _, archive = read(folder / "run.sh")
    assert archive.getnames() == ["run.sh"]


def test_what_is_no_file_cannot_be_packed(folder):
    os.mkfifo(folder / "pipe")
    with pytest.raises(errors.InvalidInputError) as error, packed(folder):
        pass
    assert error.value.code == "package.special_file"


def test_an_upload_is_multipart_and_read_from_its_beginning_again(folder):
    hub = Hub(httpx.ReadTimeout("slow"), ok())
    hub.client().version_upload("env_1", folder, entry="run.sh")
    first, second = (request.content.split(b"\r\n\r\n") for request in hub.requests)
    assert len(b"".join(first)) == len(b"".join(second))
    assert b'name="archive"; filename="env.tar.gz"' in hub.requests[1].content
    assert b'name="entry"' in hub.requests[1].content


# Login


def test_a_login_is_remembered_for_its_owner_alone(tmp_path):
    path = tmp_path / "config" / "login.json"
    write_login(Login("https://hub.example", "qh_x"), path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert read_login(path) == Login("https://hub.example", "qh_x")
    assert read_login(tmp_path / "none") is None
    assert [item.name for item in path.parent.iterdir()] == ["login.json"]


def test_a_login_that_others_may_read_is_refused(tmp_path):
    path = write_login(Login("https://hub.example", "qh_x"), tmp_path / "login.json")
    path.chmod(0o644)
    with pytest.raises(errors.InvalidInputError) as error:
        read_login(path)
    assert error.value.code == "login.exposed"


@pytest.mark.parametrize("text", ["", "[]", '{"url": 1}', "\x00"])
def test_a_broken_login_file_is_named(tmp_path, text):
    path = tmp_path / "login.json"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(errors.InvalidInputError) as error:
        read_login(path)
    assert str(path) in error.value.message


@pytest.mark.parametrize(
    "url", ["hub.example", "ftp://x", "https://", "https://a:b@x", "https://x/?q", ""]
)
def test_what_is_no_address_is_refused(url):
    with pytest.raises(errors.InvalidInputError):
        checked_url(url)


def test_clear_text_to_another_machine_is_known():
    assert is_exposed("http://hub.example")
    assert not is_exposed("http://127.0.0.1:8000")
    assert not is_exposed("https://hub.example")


def test_the_config_folder_follows_the_environment():
    assert str(config_file({"XDG_CONFIG_HOME": "/x"})) == "/x/qualityhub/login.json"
