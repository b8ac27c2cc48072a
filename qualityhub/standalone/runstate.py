"""One instance per data folder: a lock that dies with its holder, and a file that describes it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

from qualityhub.engine.errors import ConflictError
from qualityhub.standalone.process import is_running, signal_group, start_time, wait_gone

if TYPE_CHECKING:
    from qualityhub.standalone.layout import Home


@dataclass(slots=True)
class RunState:
    """What others may know about an instance.

    Attributes:
        pid: The supervisor.
        started: Its start time as the kernel names it; tells a reused pid apart.
        url: Where the hub answers.
        phase: ``starting``, ``ready`` or ``stopping``.
        since: Unix time of the start.
        children: Part → (pid, start time).
    """

    pid: int
    started: str | None
    url: str
    phase: str = "starting"
    since: float = 0.0
    children: dict[str, tuple[int, str | None]] = field(default_factory=dict)

    @property
    def alive(self) -> bool:
        """Whether this very supervisor still runs."""
        return is_running(self.pid, self.started)


def read_state(home: Home) -> RunState | None:
    """Return what the data folder says about its last instance; ``None`` if it says nothing."""
    try:
        raw = json.loads((home.run / "up.json").read_text(encoding="utf-8"))
        children = {name: (int(pid), started) for name, (pid, started) in raw["children"].items()}
        return RunState(
            int(raw["pid"]), raw["started"], raw["url"], raw["phase"], raw["since"], children
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


class Instance:
    """The right to run on a data folder; held until `release`.

    The lock is the kernel's: it ends with the process, so nothing stale can remain.

    Args:
        home: The data folder; it must exist.
        url: Where the hub will answer.

    Raises:
        ConflictError: ``up.already_running``, naming the other instance.
    """

    def __init__(self, home: Home, url: str) -> None:
        self._home = home
        self._lock = os.open(home.run / "up.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            other = read_state(home)
            who = f"pid {other.pid}, {other.url}" if other else "it has not said its pid yet"
            raise ConflictError(
                "up.already_running",
                f"QualityHub already runs on {home.root} ({who}).",
                "Open it there, end it with `qualityhub stop`, "
                "or start a second one with --home DIR and --port N.",
            ) from None
        self.leftovers = _end_orphans(read_state(home))
        self.state = RunState(os.getpid(), start_time(os.getpid()), url, since=time.time())
        self.save()

    def save(self) -> None:
        """Write the state for others to read; replaced whole, never seen half."""
        descriptor, name = tempfile.mkstemp(prefix=".up-", dir=self._home.run)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(asdict(self.state), file)
        Path(name).replace(self._home.run / "up.json")

    def release(self) -> None:
        """Give the data folder back."""
        with contextlib.suppress(FileNotFoundError):
            (self._home.run / "up.json").unlink()
        os.close(self._lock)

    def __enter__(self) -> Self:
        """Hold it for a ``with`` block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Give it back."""
        self.release()


def _end_orphans(old: RunState | None) -> list[str]:
    """Wait for what a killed supervisor left behind; end what does not go by itself.

    The kernel told them when their supervisor went, so mostly there is nothing to do.

    Returns:
        Names of the parts that were still there.
    """
    if old is None or old.alive:
        return []
    left = [name for name, (pid, started) in old.children.items() if is_running(pid, started)]
    for name in left:
        pid, started = old.children[name]
        # A database that is shutting down must not be killed: it only takes longer to start.
        patience = 30 if name == "postgres" else 8
        if not wait_gone(pid, started, patience):
            signal_group(pid, signal.SIGKILL)
            wait_gone(pid, started, 5)
    return left
