"""What a fork server says, taken for foreign: what it imported runs in the same process."""

from __future__ import annotations

import array
import contextlib
import json
import os
import socket
import struct
from typing import Any, NamedTuple

from qualityhub.engine.sandbox.launcher.stage import StageError

_CREDENTIALS = struct.Struct("=iII")
_MOST_FILES = 64
_MOST_S = 1e9
_MOST_KIB = 1 << 43
_MOST_TEXT = 4000


class Usage(NamedTuple):
    """How a trial ended, as its server saw it."""

    code: int
    cpu_s: float
    peak_bytes: int


def document(data: bytes) -> dict[str, Any]:
    """Return the JSON object of a message.

    Raises:
        StageError: It is none, or nothing came.
    """
    if not data:
        raise StageError("the fork server is gone")
    try:
        said = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise StageError("the fork server does not answer in JSON") from error
    if not isinstance(said, dict):
        raise StageError("the fork server answers with no object")
    return said


def refuse_unready(data: bytes) -> None:
    """Take the first message of a server.

    Raises:
        StageError: It is not ready; with its reason.
    """
    said = document(data)
    if said.get("ready") is not True:
        raise StageError(str(said.get("error", "no reason was given"))[:_MOST_TEXT])


def usage(data: bytes) -> Usage:
    """Return how a trial ended.

    Raises:
        StageError: The message does not say so.
    """
    said = document(data)
    code, cpu_s, peak_kib = said.get("code"), said.get("cpu_s"), said.get("peak_kib")
    # A flag is no count, and a comparison with what is not a number is false.
    if not isinstance(code, int) or isinstance(code, bool) or not 0 <= code <= 255:
        raise StageError("the fork server gives no exit status")
    if not isinstance(cpu_s, (int, float)) or isinstance(cpu_s, bool) or not 0 <= cpu_s <= _MOST_S:
        raise StageError("the fork server gives no processor time")
    if (
        not isinstance(peak_kib, int)
        or isinstance(peak_kib, bool)
        or not 0 <= peak_kib <= _MOST_KIB
    ):
        raise StageError("the fork server gives no memory")
    return Usage(code, float(cpu_s), peak_kib * 1024)


def sender(gate: socket.socket) -> int:
    """Return the process id of whoever knocks, as the kernel tells it.

    Raises:
        StageError: It is no knock.
    """
    room = socket.CMSG_SPACE(_CREDENTIALS.size) + socket.CMSG_SPACE(_MOST_FILES * 4)
    word, extra, _, _ = gate.recvmsg(16, room)
    files = _files(extra)
    _close(files)
    found = [
        data
        for level, kind, data in extra
        if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS
    ]
    if word != b"m" or files or len(found) != 1 or len(found[0]) != _CREDENTIALS.size:
        raise StageError("the fork server started no trial")
    pid = int(_CREDENTIALS.unpack(found[0])[0])
    if pid <= 0:
        raise StageError("the fork server started no trial that is seen from here")
    return pid


def places(gate: socket.socket, wanted: int) -> tuple[list[int] | None, str]:
    """Return the trial's writable folders, None and the reason where its world was not built.

    Args:
        gate: The trial's own socket.
        wanted: How many folders were asked for; any other number is closed and refused.
    """
    gate.setblocking(False)
    room = socket.CMSG_SPACE(_CREDENTIALS.size) + socket.CMSG_SPACE(_MOST_FILES * 4)
    try:
        word, extra, _, _ = gate.recvmsg(4096, room)
    except (BlockingIOError, ConnectionError):
        return None, "it ended early"
    files = _files(extra)
    if word == b"u" and len(files) == wanted:
        return files, ""
    _close(files)
    if word[:1] == b"e":
        return None, word[1:].decode(errors="replace")
    return None, "it ended early" if word != b"u" else "it handed out other folders"


def _files(extra: list[tuple[int, int, bytes]]) -> list[int]:
    files = array.array("i")
    for level, kind, data in extra:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            files.frombytes(data[: len(data) - len(data) % files.itemsize])
    return list(files)


def _close(files: list[int]) -> None:
    for file in files:
        with contextlib.suppress(OSError):
            os.close(file)
