"""Our end of a fork server: which commands it can run, and one trial after the other."""

from __future__ import annotations

import os
import socket
import weakref
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from qualityhub.engine.errors import MachineryError
from qualityhub.engine.sandbox.launcher import wire
from qualityhub.engine.sandbox.launcher.assemble import CAPABILITIES
from qualityhub.engine.sandbox.layers import TARGET
from qualityhub.engine.sandbox.port import Command, Completed, Limits
from qualityhub.engine.sandbox.words import refuse

START_S = 120.0
PROGRAMS = "/qh/programs"
_FLAGS = frozenset({"-B", "-E", "-I", "-S", "-s", "-u"})
_NUMBERS = {
    "CAP_CHOWN": 0,
    "CAP_DAC_OVERRIDE": 1,
    "CAP_FOWNER": 3,
    "CAP_FSETID": 4,
    "CAP_KILL": 5,
    "CAP_SETGID": 6,
    "CAP_SETUID": 7,
    "CAP_NET_BIND_SERVICE": 10,
}
_SHARED_LIMITS = ("memory_bytes", "pids", "disk_bytes", "files")
_LONGEST = 100_000


@dataclass(frozen=True, slots=True)
class Call:
    """A command as a Python interpreter reads it.

    Attributes:
        python: Interpreter and its flags.
        program: Path of the program's file; empty for code.
        code: Program text of ``-c``, None for a file.
        arguments: After the program.
    """

    python: tuple[str, ...]
    program: str
    code: str | None
    arguments: tuple[str, ...]


def python_call(argv: tuple[str, ...]) -> Call | None:
    """Return what an argument list asks of a Python interpreter, None where it asks another."""
    if not argv or not PurePosixPath(argv[0]).name.startswith("python"):
        return None
    at = 1
    while at < len(argv) and argv[at] in _FLAGS:
        at += 1
    rest = argv[at:]
    if len(rest) >= 2 and rest[0] == "-c":
        return Call(argv[:at], "", rest[1], rest[2:])
    if rest and rest[0].startswith("/"):
        return Call(argv[:at], rest[0], None, rest[1:])
    return None


def serve_key(command: Command, preload: tuple[str, ...] = ()) -> Hashable | None:
    """Return what commands of one fork server have in common, None for what is never served.

    Input, what is collected, the text of ``-c`` with its arguments and the limits of one command
    alone may differ.
    """
    call = python_call(command.argv)
    if call is None or command.base is not None or command.network or command.keep is not None:
        return None
    if sum(map(len, command.argv)) > _LONGEST or refuse(command) is not None:
        return None
    return (
        call.python,
        call.program,
        preload,
        tuple(sorted(command.env.items())),
        command.mounts,
        command.cwd,
        command.hostname,
        command.umask,
        command.first,
        command.cpus,
        tuple(getattr(command.limits, name) for name in _SHARED_LIMITS),
    )


def serve_request(call: Call, preload: tuple[str, ...]) -> dict[str, Any]:
    """Return what the keeper is told beside the world of the command."""
    return {
        "python": call.python,
        "program": call.program,
        "preload": preload,
        "programs": PROGRAMS,
        # Never what the environment itself brings.
        "allowed": (TARGET, PROGRAMS),
        "capabilities": [_NUMBERS[name] for name in CAPABILITIES],
        "start_s": START_S,
    }


class BwrapServer:
    """A running fork server; made by ``BwrapSandbox.serve``."""

    def __init__(
        self,
        channel: socket.socket,
        key: Hashable,
        preload: tuple[str, ...],
        completed: Callable[[socket.socket, Command, dict[str, Any]], Completed],
    ) -> None:
        """Take over a connection whose keeper said that it is ready."""
        self._channel = channel
        self._key = key
        self._preload = preload
        self._completed = completed
        _SERVERS.add(self)

    def run(self, command: Command) -> Completed:
        """Run one command in a fresh world; see the port for the contract."""
        refused = refuse(command)
        if refused is not None:
            return refused
        call = python_call(command.argv)
        if call is None or serve_key(command, self._preload) != self._key:
            raise MachineryError("sandbox.not_served", "the fork server is for other commands")
        limits = command.limits
        header = {
            "code": call.code,
            "argv": call.arguments,
            "stdin": len(command.stdin),
            "collect": list(command.collect),
            "limits": {name: getattr(limits, name) for name in Limits.__dataclass_fields__},
        }
        try:
            wire.send(self._channel, header, command.stdin)
            seen = wire.receive(self._channel)
            if "error" in seen:
                raise MachineryError("sandbox.served", f"the fork server failed: {seen['error']}")
            return self._completed(self._channel, command, seen)
        except (EOFError, OSError) as error:
            raise MachineryError("sandbox.lost", f"the fork server was lost: {error}") from error

    def close(self) -> None:
        """End the server and the trial that it may be running."""
        self._channel.close()


def _after_fork() -> None:
    # The server must see its owner go although a child of the owner lives on.
    for server in tuple(_SERVERS):
        server.close()


_SERVERS: weakref.WeakSet[BwrapServer] = weakref.WeakSet()
os.register_at_fork(after_in_child=_after_fork)
