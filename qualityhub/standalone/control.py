"""Look at, wait for, end and read a running installation from another terminal."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from qualityhub.engine.errors import InvalidInputError, MachineryError, NotFoundError
from qualityhub.engine.reports.safe import printable
from qualityhub.standalone.layout import find_home
from qualityhub.standalone.process import is_running, tail, wait_gone
from qualityhub.standalone.ready import live_workers, readiness
from qualityhub.standalone.runstate import read_state

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PARTS = ("broker", "postgres", "setup", "web", "worker", "beat", "demo")


@dataclass(frozen=True, slots=True)
class Look:
    """What an installation looks like from outside.

    Attributes:
        home: The data folder.
        running: Whether its supervisor lives.
        ready: Whether the hub says so itself.
        pid: The supervisor.
        url: Where the hub answers.
        seconds: How long it has been running.
        parts: Part → pid, or ``None`` where it is gone.
        missing: Check → why it fails.
        workers: Live workers that the hub sees, on whatever host; ``None`` where it does not say.
    """

    home: Path
    running: bool
    ready: bool = False
    pid: int | None = None
    url: str = ""
    seconds: float = 0
    parts: dict[str, int | None] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    workers: int | None = None

    @property
    def exit_code(self) -> int:
        """0 ready, 1 running but not ready, 3 not running."""
        return 3 if not self.running else 0 if self.ready else 1

    def as_json(self) -> dict[str, Any]:
        """Return it for programs."""
        return {
            "running": self.running,
            "ready": self.ready,
            "pid": self.pid,
            "url": self.url,
            "home": str(self.home),
            "seconds": round(self.seconds, 1),
            "parts": self.parts,
            "missing": self.missing,
            "workers": self.workers,
        }

    def as_text(self) -> str:
        """Return it for people."""
        if not self.running:
            return f"not running (data folder {self.home})\nStart it with: qualityhub up"
        state = "ready" if self.ready else "running, not ready"
        rows = [f"{state}: {self.url} (pid {self.pid}, {self.seconds:.0f} s, {self.home})"]
        rows += [
            f"  {name:<9} {'gone' if pid is None else pid}" for name, pid in self.parts.items()
        ]
        if self.workers is not None:
            rows.append(f"  live workers: {self.workers} ({self.url.rstrip('/')}/workers/)")
        rows += [
            f"  waiting for {name}: {printable(why, 200)}" for name, why in self.missing.items()
        ]
        return "\n".join(rows)


def look(home: Path | None = None, *, wait_s: float = 0) -> Look:
    """Return what the installation looks like.

    Args:
        home: Its data folder; default: as `find_home`.
        wait_s: Seconds to wait for it to become ready.
    """
    place = find_home(home)
    deadline = time.monotonic() + wait_s
    while True:
        state = read_state(place)
        if state is None or not state.alive:
            found = Look(place.root, running=False)
        else:
            ready, missing = readiness(state.url, 5)
            found = Look(
                place.root,
                running=True,
                # Ready as its supervisor sees it too: not while it is ending.
                ready=ready and state.phase != "stopping",
                pid=state.pid,
                url=state.url,
                seconds=time.time() - state.since,
                parts={
                    name: pid if is_running(pid, started) else None
                    for name, (pid, started) in state.children.items()
                },
                missing=missing,
                workers=live_workers(state.url, 5) if ready else None,
            )
        if found.ready or time.monotonic() >= deadline:
            return found
        time.sleep(0.3)


def end(home: Path | None, timeout: float) -> int | None:
    """Ask the installation to end and wait for it.

    Args:
        home: Its data folder; default: as `find_home`.
        timeout: Seconds to wait at most.

    Returns:
        The supervisor's pid, or ``None`` when it did not run.

    Raises:
        MachineryError: ``stop.timeout`` or ``stop.forbidden``.
    """
    state = read_state(find_home(home))
    if state is None or not state.alive:
        return None
    try:
        os.kill(state.pid, signal.SIGTERM)
    except PermissionError as error:
        raise MachineryError(
            "stop.forbidden",
            f"This user may not stop pid {state.pid}.",
            "Stop it as the user who started it.",
        ) from error
    if not wait_gone(state.pid, state.started, timeout):
        raise MachineryError(
            "stop.timeout",
            f"Pid {state.pid} has not ended after {timeout:.0f} s.",
            "A worker may be finishing a batch. Wait, or run `qualityhub stop` again: "
            "the second time it does not wait for its workers.",
        )
    return state.pid


def log_lines(
    home: Path | None, name: str | None, lines: int, *, follow: bool = False
) -> Iterator[str]:
    """Yield the last lines of one part's log, or of all, with control characters made visible.

    Args:
        home: The data folder; default: as `find_home`.
        name: The part; ``None``: all that have a log, each line with its name.
        lines: How many per part.
        follow: Go on with what is added, until interrupted.

    Raises:
        InvalidInputError: ``logs.unknown_part``.
        NotFoundError: ``logs.none`` when nothing was logged yet.
    """
    folder = find_home(home).logs
    if name is not None and name not in PARTS:
        raise InvalidInputError(
            "logs.unknown_part", f"No part is called {name!r}.", f"Parts are: {', '.join(PARTS)}."
        )
    files = {part: folder / f"{part}.log" for part in PARTS if name in {None, part}}
    present = {part: path for part, path in files.items() if path.is_file()}
    if not present:
        raise NotFoundError(
            "logs.none", f"Nothing was logged in {folder} yet.", "Start it with: qualityhub up"
        )
    offsets = {part: path.stat().st_size for part, path in present.items()}
    for part, path in present.items():
        for line in tail(path, lines):
            yield _shown(part, line, name)
    while follow:
        time.sleep(0.3)
        for part, path in files.items():
            if not path.is_file():
                continue
            size = path.stat().st_size
            begin = offsets.get(part, 0)
            if size < begin:
                begin = 0  # The file was started anew.
            with path.open("rb") as file:
                file.seek(begin)
                added = file.read(1 << 20)
            whole = added[: added.rfind(b"\n") + 1]
            offsets[part] = begin + len(whole)
            for line in whole.decode("utf-8", errors="replace").splitlines():
                yield _shown(part, line, name)


def _shown(part: str, line: str, name: str | None) -> str:
    text = printable(line, 4000)
    return text if name else f"{part:<9}| {text}"
