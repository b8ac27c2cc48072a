from __future__ import annotations

import array
import json
import os
import socket
from pathlib import Path

import pytest

from qualityhub.engine.sandbox.launcher import heard
from qualityhub.engine.sandbox.launcher.stage import StageError

GOOD = {"code": 3, "cpu_s": 0.5, "peak_kib": 2}


def test_how_a_trial_ended_is_taken_over():
    assert heard.usage(json.dumps(GOOD).encode()) == heard.Usage(3, 0.5, 2048)


@pytest.mark.parametrize(
    "data",
    [b"", b"x", b"\xff", b"null", b"[]", b"3", b'"code"', b"[" * 100_000, b"1" * 5000, b"{}"],
)
def test_what_is_no_object_of_json_is_refused(data):
    with pytest.raises(StageError):
        heard.usage(data)
    with pytest.raises(StageError):
        heard.refuse_unready(data)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("code", value) for value in (None, "0", 1.0, True, -1, 256, [0], 10**30)),
        *(("cpu_s", value) for value in (None, "0", True, -0.1, {}, float("nan"), float("inf"))),
        *(("cpu_s", value) for value in (10**400, -float("inf"), 1e10)),
        *(("peak_kib", value) for value in (None, "0", True, -1, 1.5, float("nan"), 1 << 60)),
    ],
)
def test_what_no_trial_can_have_used_is_refused(name, value):
    with pytest.raises(StageError):
        heard.usage(json.dumps({**GOOD, name: value}).encode())


@pytest.mark.parametrize("said", [{"ready": 1}, {"ready": False}, {"error": ["x"]}, {"error": 7}])
def test_only_what_is_ready_is_ready(said):
    heard.refuse_unready(b'{"ready": true}')
    with pytest.raises(StageError):
        heard.refuse_unready(json.dumps(said).encode())


def test_a_reason_is_passed_on_and_cut():
    with pytest.raises(StageError, match="no room") as seen:
        heard.refuse_unready(json.dumps({"error": "no room" * 10_000}).encode())
    assert len(str(seen.value)) == 4000


@pytest.fixture
def ends():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    with ours, theirs:
        yield ours, theirs


def send(link, word, count):
    """Send a word and so many folders."""
    folder = os.open("/", os.O_PATH)
    rights = array.array("i", [folder] * count)
    link.sendmsg([word], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)] if count else [])
    os.close(folder)


def opened():
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize(("word", "count"), [(b"m", 1), (b"m", 60), (b"x", 0), (b"x", 3), (b"", 2)])
def test_a_knock_brings_no_files(ends, word, count):
    before = opened()
    send(ends[1], word, count)
    with pytest.raises(StageError):
        heard.sender(ends[0])
    assert opened() == before


def test_the_kernel_says_who_knocks(ends):
    send(ends[1], b"m", 0)
    assert heard.sender(ends[0]) == os.getpid()


@pytest.mark.parametrize(
    ("word", "count"),
    [(b"u", 0), (b"u", 1), (b"u", 3), (b"u", 200), (b"e why", 2), (b"x", 2), (b"", 2)],
)
def test_folders_that_were_not_asked_for_are_closed(ends, word, count):
    before = opened()
    send(ends[1], word, count)
    assert heard.places(ends[0], 2)[0] is None
    assert opened() == before


def test_folders_that_were_asked_for_are_kept(ends):
    send(ends[1], b"u", 2)
    files, problem = heard.places(ends[0], 2)
    assert (len(files), problem) == (2, "")
    for file in files:
        os.close(file)
    send(ends[1], b"u", 0)
    assert heard.places(ends[0], 0) == ([], "")
    assert heard.places(ends[0], 0) == (None, "it ended early")


def test_a_reason_that_a_world_was_not_built_is_told(ends):
    send(ends[1], b"eno room", 0)
    assert heard.places(ends[0], 1) == (None, "no room")
