from __future__ import annotations

import os
import shutil
import socket
from types import SimpleNamespace

import pytest

from qualityhub.engine.sandbox import select
from qualityhub.engine.sandbox.port import Capability
from qualityhub.standalone import broker, pgbinaries
from qualityhub.standalone.doctor import examine, worst
from qualityhub.standalone.layout import Home
from qualityhub.standalone.runstate import Instance

USABLE = Capability(
    "bwrap", usable=True, limits={"memory_bytes": "hard", "files": "soft"}, ownership=True
)
UNUSABLE = Capability("container", usable=False, reason="nobody answers", remedy="Start one.")


@pytest.fixture
def machine(monkeypatch):
    """A machine whose sandboxes are what the test says."""
    found = [USABLE, UNUSABLE]
    monkeypatch.setattr(select, "capabilities", lambda _home: found)
    for name in [name for name in os.environ if name.startswith("QH_")]:
        monkeypatch.delenv(name)
    return found


def look(home, port=0, host="127.0.0.1"):
    return {check.name: check for check in examine(home, host, port)}


def test_a_machine_that_can_do_it_all(machine, open_dir):
    machine.remove(UNUSABLE)
    checks = look(open_dir / "home")
    assert worst(list(checks.values())) == "ok", checks
    names = ["python", "settings", "home", "disk", "port", "database", "broker", "sandbox bwrap"]
    assert set(names) <= checks.keys()
    said = checks["sandbox bwrap"].detail
    assert said == "what auto takes; hard: memory; soft (sampled): number of files"
    assert not (open_dir / "home").exists()


def test_what_is_missing_comes_with_its_remedy(machine, open_dir):
    check = look(open_dir / "home")["sandbox container"]
    assert (check.status, check.detail, check.remedy) == ("warn", "nobody answers", "Start one.")
    assert "-> Start one." in check.as_text()


def test_no_sandbox_at_all_means_static_rules_only(machine, open_dir):
    machine.remove(USABLE)
    check = look(open_dir / "home")["sandbox"]
    assert check.status == "warn"
    assert "static rules" in check.detail


def test_results_that_depend_on_ownership_are_named(machine, open_dir):
    machine[0] = Capability("bwrap", usable=True)
    assert "file ownership is not real" in look(open_dir / "home")["sandbox bwrap"].detail


def test_a_taken_port(machine, open_dir):
    with socket.create_server(("127.0.0.1", 0)) as other:
        check = look(open_dir / "home", other.getsockname()[1])["port"]
    assert check.status == "fail"
    assert "--port" in check.remedy


def test_the_port_of_the_running_hub_is_no_conflict(machine, open_dir):
    home = Home(open_dir / "home")
    home.create()
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with Instance(home, f"http://127.0.0.1:{port}"):
            checks = look(home.root, port)
    assert checks["port"].status == "ok"
    assert f"in use by pid {os.getpid()}" in checks["home"].detail


def test_a_full_disk(machine, open_dir, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=2**20))
    assert look(open_dir / "home")["disk"].status == "fail"


def test_data_of_another_major_version(machine, open_dir):
    data = open_dir / "home" / "postgres" / "data"
    data.mkdir(parents=True)
    (data / "PG_VERSION").write_text("15\n")
    check = look(open_dir / "home")["database"]
    assert check.status == "fail"
    assert "PostgreSQL 15" in check.detail


def test_servers_of_ones_own_that_do_not_answer(machine, open_dir, monkeypatch):
    monkeypatch.setenv("QH_DATABASE_URL", "postgresql://u:hush@127.0.0.1:1/hub")
    monkeypatch.setenv("QH_BROKER_URL", "redis://:hush@127.0.0.1:1/0")
    checks = look(open_dir / "home")
    assert checks["database"].status == checks["broker"].status == "fail"
    assert "hush" not in "".join(check.as_text() for check in checks.values())


def test_missing_wheels(machine, open_dir, monkeypatch):
    monkeypatch.setattr(pgbinaries, "PACKAGE", "no_such_package_here")
    monkeypatch.setattr(broker, "PACKAGE", "no_such_package_here")
    checks = look(open_dir / "home")
    assert checks["database"].status == checks["broker"].status == "fail"
    assert "qualityhub[standalone]" in checks["broker"].remedy


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's database changes its user id")
def test_a_data_folder_the_database_cannot_reach(machine, open_dir):
    closed = open_dir / "closed"
    closed.mkdir(mode=0o700)
    check = look(closed / "home")["home"]
    assert check.status == "fail"
    assert str(closed) in check.detail
