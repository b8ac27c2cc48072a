from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from qualityhub.engine.errors import ConflictError, InvalidInputError
from qualityhub.standalone.layout import Home, find_home
from qualityhub.standalone.process import is_running, start_time
from qualityhub.standalone.runstate import Instance, read_state

HOLD = """
import sys, time
from pathlib import Path
from qualityhub.standalone.layout import Home
from qualityhub.standalone.runstate import Instance
with Instance(Home(Path(sys.argv[1])), "http://127.0.0.1:8499"):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def home(tmp_path):
    home = Home(tmp_path / "home")
    home.create()
    return home


def test_a_second_instance_is_refused_naming_pid_and_address(home, run_python):
    first = run_python(HOLD, home.root)
    assert first.stdout.readline() == "held\n"
    with pytest.raises(ConflictError) as caught:
        Instance(home, "http://127.0.0.1:1")
    assert caught.value.code == "up.already_running"
    assert str(first.pid) in caught.value.message
    assert "http://127.0.0.1:8499" in caught.value.message
    assert "--home" in caught.value.hint
    assert "--port" in caught.value.hint
    assert read_state(home).pid == first.pid


def test_the_lock_of_a_killed_instance_is_free(home, run_python):
    first = run_python(HOLD, home.root)
    first.stdout.readline()
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert not read_state(home).alive
    with Instance(home, "http://127.0.0.1:1") as mine:
        assert read_state(home).pid == os.getpid()
        assert mine.state.alive
    assert read_state(home) is None


def test_what_a_killed_instance_left_running_is_ended(home, monkeypatch):
    monkeypatch.setattr("qualityhub.standalone.runstate.wait_gone", lambda *_: False)
    with subprocess.Popen(["sleep", "60"], process_group=0) as orphan:
        dead = {
            "pid": 2**22 + 1,
            "started": "1",
            "url": "http://127.0.0.1:1",
            "phase": "ready",
            "since": 0,
            "children": {"web": [orphan.pid, start_time(orphan.pid)]},
        }
        (home.run / "up.json").write_text(json.dumps(dead))
        with Instance(home, "http://127.0.0.1:1") as mine:
            assert mine.leftovers == ["web"]
            assert orphan.wait(5) == -signal.SIGKILL


def test_a_reused_pid_is_not_taken_for_a_left_over_child(home):
    with subprocess.Popen(["sleep", "60"], process_group=0) as stranger:
        dead = {
            "pid": 2**22 + 1,
            "started": "1",
            "url": "http://127.0.0.1:1",
            "phase": "ready",
            "since": 0,
            "children": {"web": [stranger.pid, "12345"]},
        }
        (home.run / "up.json").write_text(json.dumps(dead))
        with Instance(home, "http://127.0.0.1:1") as mine:
            assert mine.leftovers == []
            assert is_running(stranger.pid)
        stranger.kill()


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"pid": "x"}', "\x00\xff"])
def test_a_broken_state_file_means_not_running(home, text):
    (home.run / "up.json").write_text(text)
    assert read_state(home) is None
    with Instance(home, "http://127.0.0.1:1"):
        assert read_state(home).pid == os.getpid()


def test_folders_with_secrets_are_closed_to_others(home):
    for folder in (home.secrets, home.logs, home.run):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    expected = 0o711 if os.geteuid() == 0 else 0o700
    assert stat.S_IMODE(home.root.stat().st_mode) == expected


@pytest.mark.parametrize("root", ["/", str(Path.home())])
def test_a_folder_that_is_not_ours_alone_is_refused(root):

    before = Path(root).stat().st_mode
    with pytest.raises(InvalidInputError) as caught:
        Home(Path(root)).create()
    assert caught.value.code == "home.unfit"
    assert Path(root).stat().st_mode == before


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "home").write_text("a file")
    with pytest.raises(InvalidInputError) as caught:
        Home(tmp_path / "home" / "below").create()
    assert caught.value.code == "home.unwritable"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_somebody_elses_folder_is_refused(tmp_path):
    folder = tmp_path / "theirs"
    folder.mkdir()
    os.chown(folder, 12345, 12345)
    with pytest.raises(ConflictError) as caught:
        Home(folder).create()
    assert caught.value.code == "home.foreign"


def test_the_command_line_wins_over_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("QH_HOME", str(tmp_path / "environment"))
    assert find_home().root == tmp_path / "environment"
    assert find_home(tmp_path / "flag").root == tmp_path / "flag"
    monkeypatch.chdir(tmp_path)
    assert find_home(Path("flag")).root == tmp_path / "flag"


def test_start_times_tell_processes_apart():
    mine = start_time(os.getpid())
    assert is_running(os.getpid(), mine)
    assert not is_running(os.getpid(), "1")
    with subprocess.Popen([sys.executable, "-c", "pass"]) as child:
        child.wait()
        assert start_time(child.pid) is None
