from __future__ import annotations

import signal
import stat

import pytest
import redis
from celery import Celery

from qualityhub.engine.errors import MachineryError
from qualityhub.standalone import broker as module
from qualityhub.standalone.broker import EmbeddedValkey
from qualityhub.standalone.process import start_time, wait_gone


@pytest.fixture
def broker(tmp_path):
    with EmbeddedValkey(tmp_path / "broker") as broker:
        yield broker


def test_celery_and_redis_reach_it_by_their_own_spelling(broker):
    assert broker.url.startswith("redis+socket://")
    with redis.Redis.from_url(broker.client_url) as client:
        assert client.ping()
        with Celery(broker=broker.url) as app:
            app.send_task("some.task", args=[1])
        assert client.llen("celery") == 1


def test_it_is_private_and_listens_on_no_port(broker):
    assert stat.S_IMODE(broker.data_dir.stat().st_mode) == 0o700
    assert stat.S_IMODE(broker.socket_path.stat().st_mode) == 0o700
    with redis.Redis.from_url(broker.client_url) as client:
        assert client.config_get("port") == {"port": "0"}
        assert client.config_get("save") == {"save": ""}
        assert client.config_get("appendonly") == {"appendonly": "no"}
        assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}


def test_an_open_folder_is_closed_before_it_starts(tmp_path):
    folder = tmp_path / "broker"
    folder.mkdir(mode=0o755)
    with EmbeddedValkey(folder):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_it_starts_over_the_socket_of_a_killed_one(broker):
    broker.process.kill()
    broker.process.wait()
    assert broker.socket_path.exists()
    assert not broker.ping()
    broker.start()
    assert broker.ping()


def test_it_stops_and_leaves_no_socket(broker):
    socket = broker.socket_path
    broker.stop()
    assert not socket.exists()
    assert not broker.ping()
    with pytest.raises(MachineryError, match="not running"):
        _ = broker.url


def test_a_folder_too_deep_for_a_socket_still_works(tmp_path):
    with EmbeddedValkey(tmp_path / ("d" * 60) / ("e" * 60)) as broker:
        assert broker.ping()


def test_a_failed_start_says_what_the_server_said(tmp_path):
    program = tmp_path / "server"
    program.write_text("#!/bin/sh\necho 'cannot open the port'\nexit 3\n")
    program.chmod(0o755)
    with pytest.raises(MachineryError) as caught:
        EmbeddedValkey(tmp_path / "broker", server=program).start()
    assert caught.value.code == "broker.start_failed"
    assert "status 3" in caught.value.message
    assert "cannot open the port" in caught.value.message


def test_it_ends_when_its_starter_is_killed(tmp_path, run_python):
    starter = run_python(
        "import sys, time; from pathlib import Path\n"
        "from qualityhub.standalone.broker import EmbeddedValkey\n"
        "server = EmbeddedValkey(Path(sys.argv[1])); server.start()\n"
        "print(server.process.pid, flush=True); time.sleep(60)",
        tmp_path / "broker",
    )
    pid = int(starter.stdout.readline())
    started = start_time(pid)
    starter.send_signal(signal.SIGKILL)
    assert wait_gone(pid, started, 10)


def test_a_missing_wheel_names_both_ways_out(monkeypatch):
    monkeypatch.setattr(module, "PACKAGE", "no_such_package_here")
    with pytest.raises(MachineryError) as caught:
        module.find_server()
    assert caught.value.code == "broker.missing"
    assert "QH_BROKER_URL" in caught.value.hint
