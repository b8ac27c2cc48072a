"""The supervisor with tiny children in place of the real ones."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import stat
import sys
import threading
import time
from pathlib import Path

import pytest

from qualityhub.engine.errors import ConflictError, MachineryError
from qualityhub.standalone import commands, supervisor
from qualityhub.standalone.commands import ChildEnvironment
from qualityhub.standalone.console import Console
from qualityhub.standalone.layout import Home
from qualityhub.standalone.parts import Command
from qualityhub.standalone.process import is_running
from qualityhub.standalone.runstate import read_state
from qualityhub.standalone.supervisor import UpOptions, run

SET_UP = """
import json, os, sys
print("set up")
with os.fdopen(int(sys.argv[1]), "w") as pipe:
    json.dump({"created": True, "email": "admin@localhost", "links": ["/sign-in/one/"]}, pipe)
"""
WEB = """
import http.server, json, os, socket, sys
class Ready(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        answer = json.loads(open(sys.argv[2]).read())
        body = json.dumps(answer).encode()
        self.send_response(200 if answer["ready"] else 503)
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass
class Server(http.server.HTTPServer):
    def __init__(self):
        super().__init__(("", 0), Ready, bind_and_activate=False)
        self.socket.close()
        self.socket = socket.socket(fileno=int(sys.argv[1]))
print("web is up", flush=True)
Server().serve_forever()
"""
SLEEP = "import time; print('working', flush=True); time.sleep(120)"
READY = {"ready": True, "checks": {"worker": {"ok": True, "detail": "ok"}}}
WAITING = {"ready": False, "checks": {"worker": {"ok": False, "detail": "never seen"}}}


@pytest.fixture
def world(tmp_path, monkeypatch):
    """Fake children; ``world.code[name]`` changes what one of them does."""

    class World:
        def __init__(self):
            self.home = Home(tmp_path / "home")
            self.code = {"setup": SET_UP, "web": WEB, "worker": SLEEP, "beat": SLEEP}
            self.answer = tmp_path / "answer.json"
            self.stream = io.StringIO()
            self.console = Console("text", self.stream)

        def command(self, environment, name, *words, **options):
            return Command(
                name,
                [sys.executable, "-c", self.code[name], *map(str, words)],
                environment.variables(),
                environment.home.root,
                **options,
            )

        def run(self, **options):
            return run(UpOptions(port=0, home=self.home.root, **options), self.console)

        def said(self):
            return self.stream.getvalue()

    world = World()
    world.answer.write_text(json.dumps(READY))
    monkeypatch.setenv("QH_DATABASE_URL", "postgresql:///somebody_elses")
    monkeypatch.setenv("QH_BROKER_URL", "redis://somebody.elses")
    monkeypatch.setattr(
        commands,
        "set_up",
        lambda env, fd, links: world.command(env, "setup", fd, pass_fds=(fd,)),
    )
    monkeypatch.setattr(
        commands, "web", lambda env, fd: world.command(env, "web", fd, world.answer, pass_fds=(fd,))
    )
    monkeypatch.setattr(commands, "worker", lambda env, _count: world.command(env, "worker"))
    monkeypatch.setattr(commands, "beat", lambda env: world.command(env, "beat"))
    return world


def when(condition, action):
    """Do something from another thread once a condition holds; the supervisor needs this one."""

    def wait():
        for _ in range(600):
            if condition():
                action()
                return
            time.sleep(0.02)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


def phase(world):
    state = read_state(world.home)
    return state.phase if state else None


def interrupt():
    os.kill(os.getpid(), signal.SIGTERM)


def test_it_gets_ready_prints_where_to_go_and_ends_in_order_when_asked(world):
    when(lambda: phase(world) == "ready", interrupt)
    assert world.run() == 0
    said = world.said()
    assert "QualityHub is ready" in said
    assert "/sign-in/one/" in said
    assert str(world.home.root) in said
    ends = [line.split()[-1] for line in said.splitlines() if "| stopping " in line]
    assert ends == ["beat", "worker", "web"]
    assert read_state(world.home) is None


def test_the_sign_in_link_is_in_no_log(world):
    when(lambda: phase(world) == "ready", interrupt)
    world.run()
    logs = "".join(path.read_text() for path in world.home.logs.iterdir())
    assert "set up" in logs
    assert "sign-in" not in logs


def test_it_is_not_ready_before_the_hub_says_so(world):
    world.answer.write_text(json.dumps(WAITING))

    def become_ready():
        assert phase(world) == "starting"
        world.answer.write_text(json.dumps(READY))

    when(lambda: "waiting for: worker" in world.said(), become_ready)
    when(lambda: phase(world) == "ready", interrupt)
    assert world.run() == 0
    assert world.said().index("waiting for: worker") < world.said().index("is ready")


def test_it_gives_up_waiting_and_says_for_what(world, monkeypatch):
    world.answer.write_text(json.dumps(WAITING))
    monkeypatch.setattr(supervisor, "READY_TIMEOUT_S", 1)
    with pytest.raises(MachineryError) as caught:
        world.run()
    assert caught.value.code == "up.not_ready"
    assert "worker: never seen" in caught.value.message


@pytest.mark.parametrize("name", ["web", "worker", "beat"])
def test_a_dead_part_stops_all_and_is_named_with_its_last_lines(world, name):
    pids = {}

    def kill():
        pids.update({part: pid for part, (pid, _) in read_state(world.home).children.items()})
        os.kill(pids[name], signal.SIGKILL)

    said = "web is up" if name == "web" else "working"
    log = world.home.logs / f"{name}.log"
    when(lambda: phase(world) == "ready" and said in log.read_text(), kill)
    with pytest.raises(MachineryError) as caught:
        world.run()
    assert caught.value.code == "up.part_ended"
    assert f"{name} was killed by SIGKILL" in caught.value.message
    assert f"{name}.log" in caught.value.hint
    assert said in world.said().split("last lines of")[1]
    assert sorted(pids) == ["beat", "web", "worker"]
    assert not any(is_running(pid) for pid in pids.values())
    assert read_state(world.home) is None


def test_a_part_that_cannot_start_ends_the_start(world):
    world.code["worker"] = "raise SystemExit('no such setting: QH_WRONG')"
    world.answer.write_text(json.dumps(WAITING))
    with pytest.raises(MachineryError) as caught:
        world.run()
    assert "worker ended with status 1" in caught.value.message
    assert "no such setting: QH_WRONG" in world.said()


def test_a_failed_set_up_ends_the_start_before_anything_serves(world):
    world.code["setup"] = "print('migration 0002 cannot get its lock'); raise SystemExit(2)"
    with pytest.raises(MachineryError) as caught:
        world.run()
    assert caught.value.code == "up.setup_failed"
    assert "migration 0002 cannot get its lock" in world.said()
    assert not (world.home.logs / "web.log").exists()


def test_a_set_up_without_a_result_is_no_success(world):
    world.code["setup"] = "print('fine')"
    with pytest.raises(MachineryError) as caught:
        world.run()
    assert caught.value.code == "up.setup_failed"


def test_a_taken_port_is_found_before_anything_starts(world):
    with socket.create_server(("127.0.0.1", 0)) as other:
        options = UpOptions(port=other.getsockname()[1], home=world.home.root)
        with pytest.raises(ConflictError) as caught:
            run(options, world.console)
    assert caught.value.code == "up.port_taken"
    assert list(world.home.logs.iterdir()) == []


def test_other_machines_are_let_in_only_when_asked_and_with_a_warning(world):
    when(lambda: phase(world) == "ready", interrupt)
    assert world.run(host="0.0.0.0") == 0
    assert "warning: other machines can reach this hub" in world.said()


def test_the_demonstration_runs_after_ready_and_its_lines_are_shown(world, monkeypatch):
    world.code["demo"] = "print('inspecting code/sound'); print('gate gate_abc')"
    world.code["setup"] = SET_UP.replace('["/sign-in/one/"]', '["/sign-in/one/", "/sign-in/two/"]')
    monkeypatch.setattr(commands, "demo", lambda env: world.command(env, "demo"))
    when(lambda: "is loaded" in world.said(), interrupt)
    assert world.run(demo=True) == 0
    said = world.said()
    order = [
        "is ready",
        "demo     | inspecting code/sound",
        "demo     | gate gate_abc",
        "is loaded",
    ]
    places = [said.index(text) for text in order]
    assert places == sorted(places)
    assert said.index("/sign-in/one/") < places[1] < said.index("/sign-in/two/")
    assert "/gates/gate_abc/" in said[places[-1] :]


def test_a_failed_demonstration_leaves_the_hub_running(world, monkeypatch):
    world.code["demo"] = "print('no sandbox'); raise SystemExit(4)"
    world.code["setup"] = SET_UP
    monkeypatch.setattr(commands, "demo", lambda env: world.command(env, "demo"))
    when(lambda: "was not loaded completely" in world.said(), interrupt)
    assert world.run(demo=True) == 0
    assert "no sandbox" in world.said()


def test_children_get_addresses_with_passwords_through_private_files(tmp_path, monkeypatch):
    for name in ("QH_DATABASE_URL", "QH_BROKER_URL", "QH_SECRET_KEY", "QH_PUBLIC_URL"):
        monkeypatch.delenv(name, raising=False)
    home = Home(tmp_path / "home")
    home.create()
    environment = ChildEnvironment(home, "http://127.0.0.1:8400", "127.0.0.1")
    environment.use_database("postgresql://qualityhub:hush@/qualityhub?host=%2Ftmp")
    variables = environment.variables()
    assert "hush" not in "".join(variables.values())
    path = Path(variables["QH_DATABASE_URL_FILE"])
    assert path.read_text().strip().startswith("postgresql://qualityhub:hush@")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    key = Path(variables["QH_SECRET_KEY_FILE"])
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert len(key.read_text().strip()) >= 50
    again = ChildEnvironment(home, "http://127.0.0.1:8400", "127.0.0.1").variables()
    assert again["QH_SECRET_KEY_FILE"] == str(key)


def test_what_the_operator_set_is_left_alone(tmp_path, monkeypatch):
    home = Home(tmp_path / "home")
    home.create()
    stated = {
        "QH_DATABASE_URL": "postgresql://db.example.org/hub",
        "QH_BROKER_URL": "redis://broker.example.org",
        "QH_SECRET_KEY": "k" * 50,
        "QH_PUBLIC_URL": "https://hub.example.org/",
        "QH_ALLOWED_HOSTS": "hub.example.org",
    }
    for name, value in stated.items():
        monkeypatch.setenv(name, value)
    environment = ChildEnvironment(home, "http://127.0.0.1:8400", "127.0.0.1")
    assert not environment.own_database
    assert not environment.own_broker
    assert environment.public_url == "https://hub.example.org"
    assert stated.items() <= environment.variables().items()
    assert list(home.secrets.iterdir()) == []


def test_children_end_when_the_supervisor_is_killed(world, run_python, tmp_path):
    code = (
        "import sys, time; from pathlib import Path\n"
        "from qualityhub.standalone.console import Console\n"
        "from qualityhub.standalone.parts import Child, Command\n"
        "command = Command('web', [sys.executable, '-c', 'import time; time.sleep(60)'], {},"
        " Path('/'))\n"
        "child = Child(command, Path(sys.argv[1]), Console())\n"
        "print(child.pid, flush=True); time.sleep(60)"
    )
    starter = run_python(code, tmp_path)
    pid = int(starter.stdout.readline())
    assert is_running(pid)
    starter.send_signal(signal.SIGKILL)
    starter.wait()
    for _ in range(200):
        if not is_running(pid):
            break
        time.sleep(0.02)
    assert not is_running(pid)
