"""The parts a supervisor runs: each starts, may end by itself, and can be stopped in order."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from qualityhub.standalone.console import Console, LogFile
from qualityhub.standalone.process import signal_group, spawn, tail

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


class Part(Protocol):
    """Something the supervisor watches."""

    @property
    def name(self) -> str:
        """What people call it."""

    @property
    def pid(self) -> int | None:
        """Its process, while there is one."""

    def poll(self) -> int | None:
        """Return the exit status once it ended by itself, else ``None``."""

    def last_lines(self, count: int) -> list[str]:
        """Return its last lines."""

    def stop(self, hurry: threading.Event) -> None:
        """End it; returns when it is gone.

        Args:
            hurry: Once set, nothing it is doing is waited for.
        """


@dataclass(frozen=True, slots=True)
class Command:
    """How to start a child and how to end it.

    Attributes:
        name: What people call it.
        argv: Program and arguments.
        env: Its whole environment.
        cwd: Working folder.
        stop_signal: What asks it to end.
        patience: Seconds it gets to do so.
        pass_fds: Descriptors it inherits.
        death_signal: What it receives when its supervisor was killed.
    """

    name: str
    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: Path
    stop_signal: signal.Signals = signal.SIGTERM
    patience: float = 10
    pass_fds: tuple[int, ...] = ()
    death_signal: signal.Signals = signal.SIGTERM


class Child:
    """A command running in its own process group, its lines on the console and in a log file.

    Must be started by a thread that lives as long as the child should; see `process`.

    Args:
        command: What to run.
        logs: Folder of the log files.
        console: Where lines are shown.
    """

    def __init__(self, command: Command, logs: Path, console: Console) -> None:
        self.name = command.name
        self._command = command
        self._console = console
        self._log = LogFile(logs / f"{command.name}.log")
        self._last: deque[str] = deque(maxlen=40)
        self._process: subprocess.Popen[bytes] = spawn(
            command.argv,
            env=command.env,
            cwd=command.cwd,
            stdout=subprocess.PIPE,
            death_signal=command.death_signal,
            pass_fds=command.pass_fds,
        )
        self._reader = threading.Thread(target=self._read, name=f"lines-{self.name}", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int | None:
        """Its process id."""
        return self._process.pid

    def poll(self) -> int | None:
        """Return the exit status once it ended, else ``None``."""
        return self._process.poll()

    def wait(self) -> int:
        """Wait for its end and its last line; return the exit status."""
        status = self._process.wait()
        self._reader.join(2)
        return status

    def last_lines(self, count: int) -> list[str]:
        """Return its last lines, after giving them a moment to arrive."""
        if self._process.poll() is not None:
            self._reader.join(1)
        return list(self._last)[-count:]

    def stop(self, hurry: threading.Event | None = None) -> None:
        """Ask it to end, then end its whole group by force.

        Args:
            hurry: Once set, the request is not waited for.
        """
        process = self._process
        if process.poll() is None:
            process.send_signal(self._command.stop_signal)
            deadline = time.monotonic() + self._command.patience
            while process.poll() is None and time.monotonic() < deadline:
                if hurry is not None and hurry.is_set():
                    break
                time.sleep(0.02)
        # Also when it ended in order: a grandchild that stayed would hold the pipe and the port.
        signal_group(process.pid, signal.SIGKILL)
        process.wait()
        self._reader.join(2)

    def _read(self) -> None:
        stream = self._process.stdout
        if stream is None:
            return
        with stream:
            # Bounded reads: a line without an end must not fill the memory.
            while line := stream.readline(65536):
                self._log.write(line)
                text = line.decode("utf-8", errors="replace").rstrip("\r\n")
                self._last.append(text)
                self._console.child_line(self.name, text)
        self._log.close()


class Server(Protocol):
    """What the embedded database and broker have in common."""

    log_file: Path

    @property
    def process(self) -> subprocess.Popen[bytes] | None:
        """The running server."""

    def stop(self) -> None:
        """End it."""


class ServerPart:
    """An embedded server as a part.

    Args:
        name: What people call it.
        server: The server; launched already.
    """

    def __init__(self, name: str, server: Server) -> None:
        self.name = name
        self._server = server

    @property
    def pid(self) -> int | None:
        """Its process id."""
        return self._server.process.pid if self._server.process else None

    def poll(self) -> int | None:
        """Return the exit status once it ended by itself, else ``None``."""
        return self._server.process.poll() if self._server.process else None

    def last_lines(self, count: int) -> list[str]:
        """Return the last lines of its log."""
        return tail(self._server.log_file, count)

    def stop(self, hurry: threading.Event) -> None:
        """End it; a hurry is ignored: its clean end is short, and saves the next start time."""
        del hurry
        self._server.stop()


class PartEndedError(Exception):
    """A part ended by itself.

    Args:
        part: Which.
        status: Its exit status; negative: the signal.
    """

    def __init__(self, part: Part, status: int) -> None:
        super().__init__(part.name)
        self.part = part
        self.status = status

    def sentence(self) -> str:
        """Return what happened, for people."""
        if self.status < 0:
            with contextlib.suppress(ValueError):
                name = signal.Signals(-self.status).name
                return f"{self.part.name} was killed by {name}"
        return f"{self.part.name} ended with status {self.status}"


class StopRequestedError(Exception):
    """Somebody asked the supervisor to end."""


class Parts:
    """Running parts in the order of their start; they stop in the opposite order."""

    def __init__(self) -> None:
        self.running: list[Part] = []
        self._stop = threading.Event()
        self.hurry = threading.Event()

    def add(self, part: Part) -> None:
        """Take a started part."""
        self.running.append(part)

    def request_stop(self) -> None:
        """Ask to end, from a signal handler or another thread; twice: at once."""
        if self._stop.is_set():
            self.hurry.set()
        self._stop.set()

    def check(self) -> None:
        """Raise when a part ended or the end was asked for.

        Raises:
            PartEndedError: A part ended by itself.
            StopRequestedError: The end was asked for.
        """
        if self._stop.is_set():
            raise StopRequestedError
        for part in self.running:
            status = part.poll()
            if status is not None:
                raise PartEndedError(part, status)

    def pause(self, seconds: float) -> None:
        """Wait, but not longer than until a part ends or the end is asked for.

        Args:
            seconds: How long at most.

        Raises:
            PartEndedError: As `check`.
            StopRequestedError: As `check`.
        """
        deadline = time.monotonic() + seconds
        while True:
            self.check()
            left = deadline - time.monotonic()
            if left <= 0:
                return
            self._stop.wait(min(0.2, left))

    def stop_all(self, console: Console) -> None:
        """Stop every part, last started first; a part that cannot be stopped delays no other."""
        while self.running:
            part = self.running.pop()
            if part.poll() is None:
                console.say(f"stopping {part.name}")
            try:
                part.stop(self.hurry)
            except OSError as error:
                console.say(f"{part.name} did not stop: {error}")
