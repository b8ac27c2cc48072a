from __future__ import annotations

import io
import json
import os
import signal
import sys
import threading
import time

import pytest

from qualityhub.standalone.console import Console, LogFile
from qualityhub.standalone.parts import (
    Child,
    Command,
    PartEndedError,
    Parts,
    StopRequestedError,
)
from qualityhub.standalone.process import is_running, wait_gone


@pytest.fixture
def stream():
    return io.StringIO()


@pytest.fixture
def console(stream):
    console = Console("text", stream)
    console.children_shown = True
    return console


@pytest.fixture
def start(tmp_path, console):
    """Start a child from Python text; all are stopped at the end."""
    children = []

    def start(name, code, **options):
        command = Command(
            name,
            [sys.executable, "-c", code],
            {"PATH": os.defpath, "PYTHONUNBUFFERED": "1"},
            tmp_path,
            **options,
        )
        children.append(Child(command, tmp_path, console))
        return children[-1]

    yield start
    for child in children:
        child.stop()


def until(condition, seconds=10):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def test_lines_carry_the_childs_name_and_go_to_its_log(start, stream, tmp_path):
    child = start("web", "import sys; print('out'); print('err', file=sys.stderr)")
    assert child.wait() == 0
    assert stream.getvalue().splitlines() == ["web      | out", "web      | err"]
    assert (tmp_path / "web.log").read_text() == "out\nerr\n"


def test_lines_of_a_start_are_kept_for_the_log(start, stream, console, tmp_path):
    console.children_shown = False
    assert start("web", "print('noise')").wait() == 0
    assert stream.getvalue() == ""
    assert (tmp_path / "web.log").read_text() == "noise\n"


def test_routine_and_empty_lines_are_kept_for_the_log(start, stream, tmp_path):
    lines = ["2026-11-30T03:51:55.539Z INFO celery.beat - tick", "", "Traceback:", "  at work"]
    lines += ["2026-11-30T03:51:55.539Z WARNING qualityhub.platform - slow"]
    start("web", f"print({chr(10).join(lines)!r})").wait()
    assert stream.getvalue().splitlines() == [f"web      | {line}" for line in lines[2:]]
    assert (tmp_path / "web.log").read_text().splitlines() == lines


def test_a_verbose_console_shows_every_line(tmp_path):
    stream = io.StringIO()
    console = Console("text", stream, verbose=True)
    console.child_line("web", "2026-11-30T03:51:55.539Z INFO celery.beat - tick")
    assert "tick" in stream.getvalue()


def test_control_characters_of_a_child_do_not_reach_the_terminal(start, stream):
    start("web", r"print('\x1b]0;title\x07\x1b[2J\rdone')").wait()
    assert "\x1b" not in stream.getvalue()
    assert "\r" not in stream.getvalue()
    assert "done" in stream.getvalue()


def test_json_lines_are_one_object_each(tmp_path):
    stream = io.StringIO()
    console = Console("json", stream)
    console.line("web", 'say "hi"')
    console.event("ready", "block for people", url="http://127.0.0.1:1")
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert (first["part"], first["line"]) == ("web", 'say "hi"')
    assert (second["event"], second["url"]) == ("ready", "http://127.0.0.1:1")


@pytest.mark.parametrize(
    ("variables", "coloured"),
    [({}, False), ({"FORCE_COLOR": "1"}, True), ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False)],
)
def test_no_color_wins(monkeypatch, stream, variables, coloured):
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    Console("text", stream).line("web", "hello")
    assert ("\x1b[" in stream.getvalue()) is coloured


def test_a_reader_that_went_away_stops_nothing():
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "w", closefd=True) as stream:
        Console("text", stream).say("nobody reads this")
        with pytest.raises(BrokenPipeError):
            stream.flush()
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def test_a_log_is_bounded_by_one_predecessor(tmp_path):
    log = LogFile(tmp_path / "web.log", limit=100)
    for number in range(100):
        log.write(f"line {number}".encode())
    log.close()
    assert (tmp_path / "web.log").stat().st_size <= 120
    assert (tmp_path / "web.log.1").stat().st_size <= 120
    assert (tmp_path / "web.log").read_text().splitlines()[-1] == "line 99"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["web.log", "web.log.1"]


def test_a_line_without_an_end_does_not_fill_the_memory(start, tmp_path):
    child = start("web", "import sys; sys.stdout.write('x' * 1_000_000); print(); print('last')")
    assert child.wait() == 0
    assert child.last_lines(1) == ["last"]
    assert max(len(line) for line in (tmp_path / "web.log").read_text().splitlines()) <= 65536


def test_a_child_that_ignores_the_request_is_ended_by_force(start, stream):
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf'); time.sleep(60)"
    child = start("worker", code, patience=0.3)
    until(lambda: "deaf" in stream.getvalue())
    began = time.monotonic()
    child.stop()
    assert time.monotonic() - began < 5
    assert child.poll() == -signal.SIGKILL


def test_grandchildren_end_with_their_parent(start, stream):
    code = (
        "import subprocess, sys, time\n"
        "print(subprocess.Popen(['sleep', '60']).pid, flush=True); time.sleep(60)"
    )
    child = start("web", code)
    until(lambda: child.last_lines(1))
    grandchild = int(child.last_lines(1)[0])
    assert is_running(grandchild)
    child.stop()
    assert wait_gone(grandchild, None, 5)


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("import sys; print('out of luck'); sys.exit(3)", "web ended with status 3"),
        ("import os; print('out of luck'); os.kill(os.getpid(), 9)", "web was killed by SIGKILL"),
        ("print('out of luck')", "web ended with status 0"),
    ],
)
def test_a_part_that_ends_by_itself_is_named_with_its_last_lines(start, code, sentence):
    parts = Parts()
    parts.add(start("beat", "import time; time.sleep(60)"))
    parts.add(start("web", code))
    with pytest.raises(PartEndedError) as caught:
        parts.pause(10)
    assert caught.value.sentence() == sentence
    assert caught.value.part.last_lines(5) == ["out of luck"]


def test_parts_stop_in_the_opposite_order_of_their_start(start, stream, console):
    parts = Parts()
    names = ["postgres", "broker", "web", "worker", "beat"]
    for name in names:
        parts.add(start(name, "import time; time.sleep(60)"))
    running = list(parts.running)
    parts.stop_all(console)
    said = [line.split()[-1] for line in stream.getvalue().splitlines() if "stopping" in line]
    assert said == names[::-1]
    assert all(part.poll() is not None for part in running)


def test_a_request_to_stop_ends_the_wait_at_once():
    parts = Parts()
    parts.request_stop()
    began = time.monotonic()
    with pytest.raises(StopRequestedError):
        parts.pause(60)
    assert time.monotonic() - began < 1
    assert not parts.hurry.is_set()


def test_asking_twice_does_not_wait_for_children(start, console, stream):
    parts = Parts()
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf'); time.sleep(60)"
    parts.add(start("worker", code, patience=30))
    until(lambda: "deaf" in stream.getvalue())
    parts.request_stop()
    again = threading.Timer(0.3, parts.request_stop)
    again.start()
    began = time.monotonic()
    parts.stop_all(console)
    assert 0.2 < time.monotonic() - began < 5
    again.join()


def test_only_named_descriptors_are_inherited(start):
    read_end, write_end = os.pipe()
    os.set_inheritable(read_end, True)
    try:
        code = "import os; print(*sorted(int(fd) for fd in os.listdir('/proc/self/fd')))"
        child = start("web", code, pass_fds=(write_end,))
        child.wait()
        held = [int(number) for number in child.last_lines(1)[0].split()]
    finally:
        os.close(read_end)
        os.close(write_end)
    assert write_end in held
    assert read_end not in held
