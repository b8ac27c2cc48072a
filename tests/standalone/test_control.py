from __future__ import annotations

import http.server
import json
import os
import subprocess
import threading
import time

import pytest

from qualityhub.engine.errors import InvalidInputError, MachineryError, NotFoundError
from qualityhub.standalone import control
from qualityhub.standalone.layout import Home
from qualityhub.standalone.process import start_time
from qualityhub.standalone.ready import readiness


@pytest.fixture
def home(tmp_path):
    home = Home(tmp_path / "home")
    home.create()
    return home


@pytest.fixture
def hub():
    """A web server that answers what the test says: ``hub.answer = (status, bytes)``."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            status, body = self.server.answer
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        server.answer = (200, b'{"ready": true, "checks": {}}')
        server.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def write_state(home, pid, started, url="http://127.0.0.1:1", phase="ready"):
    state = {
        "pid": pid,
        "started": started,
        "url": url,
        "phase": phase,
        "since": time.time() - 5,
        "children": {"web": [os.getpid(), start_time(os.getpid())], "beat": [2**22 + 1, "1"]},
    }
    (home.run / "up.json").write_text(json.dumps(state))


def write_own(home, url, phase="ready"):
    write_state(home, os.getpid(), start_time(os.getpid()), url, phase)


def test_nothing_runs_where_nothing_was_started(home):
    found = control.look(home.root)
    assert found.exit_code == 3
    assert "qualityhub up" in found.as_text()
    assert found.as_json()["running"] is False


def test_a_ready_hub_with_its_parts(home, hub):
    write_own(home, hub.url)
    found = control.look(home.root)
    assert found.exit_code == 0
    assert found.as_json()["parts"] == {"web": os.getpid(), "beat": None}
    assert 4 < found.seconds < 60
    assert hub.url in found.as_text()


def test_a_ready_hub_says_how_many_workers_it_sees(home, hub):
    write_own(home, hub.url)
    assert control.look(home.root).as_json()["workers"] is None
    hub.answer = (200, b'{"ready": true, "checks": {}, "workers": 3}')
    found = control.look(home.root)
    assert found.as_json()["workers"] == 3
    assert "live workers: 3" in found.as_text()


def test_a_hub_that_is_not_ready_says_for_what_it_waits(home, hub):
    checks = {"worker": {"ok": False, "detail": "never \x1b[2J seen"}}
    hub.answer = (503, json.dumps({"ready": False, "checks": checks}).encode())
    write_own(home, hub.url)
    found = control.look(home.root)
    assert found.exit_code == 1
    assert "waiting for worker" in found.as_text()
    assert "\x1b" not in found.as_text()


def test_a_hub_that_is_ending_is_not_ready(home, hub):
    write_own(home, hub.url, "stopping")
    assert control.look(home.root).exit_code == 1


def test_waiting_ends_when_it_is_ready(home, hub):
    hub.answer = (503, b'{"ready": false, "checks": {}}')
    write_own(home, hub.url)

    def become_ready():
        hub.answer = (200, b'{"ready": true, "checks": {}}')

    timer = threading.Timer(0.4, become_ready)
    timer.start()
    assert control.look(home.root, wait_s=10).exit_code == 0
    timer.join()


def test_waiting_ends_when_time_is_up(home):
    began = time.monotonic()
    assert control.look(home.root, wait_s=0.5).exit_code == 3
    assert 0.4 < time.monotonic() - began < 3


@pytest.mark.parametrize(
    "answer", [b"", b"<html>", b"[]", b'{"ready": true}', b'{"ready": true, "checks": [1]}']
)
def test_another_program_on_the_port_is_not_taken_for_a_hub(hub, answer):
    hub.answer = (200, answer)
    ready, missing = readiness(hub.url)
    assert not ready
    assert "web" in missing


def test_stopping_waits_for_the_end(home):
    with subprocess.Popen(["sleep", "60"]) as process:
        write_state(home, process.pid, start_time(process.pid))
        # A zombie would count as running: reap it as its parent.
        reaper = threading.Thread(target=process.wait)
        reaper.start()
        assert control.end(home.root, 10) == process.pid
        reaper.join()


def test_stopping_what_does_not_run_does_nothing(home):
    assert control.end(home.root, 1) is None
    with subprocess.Popen(["sleep", "60"]) as stranger:
        # The pid was given to somebody else since.
        write_state(home, stranger.pid, "1")
        assert control.end(home.root, 1) is None
        assert stranger.poll() is None
        stranger.kill()


def test_stopping_gives_up_and_says_how_to_insist(home, run_python):
    deaf = run_python(
        "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True);"
        "time.sleep(60)"
    )
    deaf.stdout.readline()
    write_state(home, deaf.pid, start_time(deaf.pid))
    with pytest.raises(MachineryError) as caught:
        control.end(home.root, 0.3)
    assert caught.value.code == "stop.timeout"
    assert "qualityhub stop" in caught.value.hint


def test_logs_of_one_part_and_of_all(home):
    (home.logs / "web.log").write_text("".join(f"line {n}\n" for n in range(100)))
    (home.logs / "beat.log").write_text("tick \x1b[31m\n")
    assert list(control.log_lines(home.root, "web", 2)) == ["line 98", "line 99"]
    everything = list(control.log_lines(home.root, None, 1))
    assert everything[0] == "web      | line 99"
    assert everything[1].startswith("beat     | tick ")
    assert "\x1b" not in everything[1]


def test_logs_of_an_unknown_part_name_the_known_ones(home):
    with pytest.raises(InvalidInputError) as caught:
        list(control.log_lines(home.root, "webb", 1))
    assert "worker" in caught.value.hint
    with pytest.raises(NotFoundError):
        list(control.log_lines(home.root, "web", 1))


def test_following_shows_what_is_added_line_by_line(home):
    path = home.logs / "web.log"
    path.write_text("old\n")
    lines = control.log_lines(home.root, "web", 5, follow=True)
    assert next(lines) == "old"

    def add():
        time.sleep(0.2)
        with path.open("a") as file:
            file.write("half")
            file.flush()
            time.sleep(0.5)
            file.write(" and whole\n")

    thread = threading.Thread(target=add)
    thread.start()
    assert next(lines) == "half and whole"
    thread.join()
    lines.close()
