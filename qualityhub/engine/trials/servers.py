"""Which trials a fork server runs, what it loads once for them, and the servers that are kept.

A server is worth its start only for several trials that differ in input alone. Trials with even
and with odd repeat index never share one: what an import drew at random, or where it came to lie
in memory, would otherwise be the same for all of them and hide that a reward depends on it.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterable
from dataclasses import replace
from pathlib import Path

from qualityhub.engine.environments.imports import find_imports
from qualityhub.engine.environments.model import Environment
from qualityhub.engine.errors import MachineryError, QualityHubError
from qualityhub.engine.sandbox.port import MIB, Command, Completed, Sandbox, Server, Serving
from qualityhub.engine.trials.model import Trial
from qualityhub.engine.trials.preloads import imported_first

OFF = "off"
VARIABLE = "QH_FORK_SERVER"
# A start costs about as much as so many trials in worlds of their own; what takes long to load
# makes up for it at the second.
_WORTH = 4
_WORTH_LOADED = 2
_OURS = frozenset(path.stem for path in (Path(__file__).parent / "programs").glob("*.py"))
_SPARE_BYTES = 512 * MIB


def enabled(value: str | None = None) -> bool:
    """Whether fork servers may be used, as a setting or the environment variable says.

    Args:
        value: ``on`` or ``off``; the variable where it is left out.
    """
    stated = os.environ.get(VARIABLE, "") if value is None else value
    return stated.strip().lower() not in {OFF, "0", "false", "no"}


class ServerPool:
    """The fork servers of one runner. Threads share it; a server is with one of them at a time."""

    def __init__(self, sandbox: Sandbox, most: int) -> None:
        """Prepare; nothing is started yet.

        Args:
            sandbox: The provider; one that cannot serve makes every trial a cold one.
            most: Servers kept at once, beside those that run a trial.
        """
        self._sandbox = sandbox
        self._most = most
        self._lock = threading.Lock()
        self._left: Counter[Hashable] = Counter()
        self._running: Counter[Hashable] = Counter()
        # Last used last.
        self._idle: OrderedDict[Server, Hashable] = OrderedDict()
        self._refused: set[Hashable] = set()
        self._closed = False

    def expect(self, kinds: Iterable[Hashable]) -> None:
        """Say which kinds of trials are to come, one entry each."""
        with self._lock:
            self._left.update(kinds)

    def known(self, kind: Hashable | None) -> None:
        """Say that one of the expected trials need not run."""
        if kind is not None:
            with self._lock:
                self._left[kind] -= 1

    def run(self, kind: Hashable, command: Command, preload: tuple[str, ...]) -> Completed | None:
        """Run a command on a server; None where it must be run in a world of its own.

        A failure of a server is never the command's: it is closed, and the command is not done.
        """
        server = self._take(kind, command, preload)
        if server is None:
            return None
        try:
            completed = server.run(command)
        except QualityHubError:
            self._drop(server, kind)
            return None
        except BaseException:
            self._drop(server, kind)
            raise
        self._give_back(server, kind)
        return completed

    def close(self) -> None:
        """End every server that runs nothing; the others end with their trial."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, OrderedDict()
        for server in idle:
            server.close()

    def _take(self, kind: Hashable, command: Command, preload: tuple[str, ...]) -> Server | None:
        with self._lock:
            left = self._left[kind]
            self._left[kind] -= 1
            if self._closed or kind in self._refused:
                return None
            for server, serves in self._idle.items():
                if serves == kind:
                    del self._idle[server]
                    self._running[kind] += 1
                    return server
            worth = _WORTH_LOADED if any(map(_is_heavy, preload)) else _WORTH
            if left < worth * (1 + self._running[kind]) or _spare_memory() < _SPARE_BYTES:
                return None
            self._running[kind] += 1
        try:
            if not isinstance(self._sandbox, Serving):
                raise MachineryError("sandbox.not_served", "this provider has no fork server")
            return self._sandbox.serve(command, preload)
        except QualityHubError:
            with self._lock:
                self._running[kind] -= 1
                self._refused.add(kind)
            return None

    def _give_back(self, server: Server, kind: Hashable) -> None:
        ended = []
        with self._lock:
            self._running[kind] -= 1
            if self._closed:
                ended.append(server)
            else:
                # The next round may ask for more of the same.
                self._idle[server] = kind
            while len(self._idle) > self._most:
                ended.append(self._idle.popitem(last=False)[0])
        for old in ended:
            old.close()

    def _drop(self, server: Server, kind: Hashable) -> None:
        with self._lock:
            self._running[kind] -= 1
        with contextlib.suppress(OSError):
            server.close()


def kind_of(trial: Trial) -> Hashable | None:
    """Return what trials of one server have in common, None for a trial that is never served."""
    if trial.cold or trial.program == "task":
        return None
    # What only the program is told of makes no other world.
    changed = replace(trial.variation, seed=0, load=0, manner="")
    trees = tuple(sorted(trial.trees.items()))
    return trial.program, trial.world, trees, changed, trial.repeat % 2


def modules_of(environment: Environment, program: Path) -> tuple[str, ...]:
    """Return what the trials of an environment import in any case, from its layer or the library.

    Its own files are read and never loaded. What only some code path imports, may be missing, or
    comes after a statement of the environment's that has an effect, is left to the trial.

    Args:
        environment: As read.
        program: Our in-sandbox program that runs it.
    """
    names = dict.fromkeys(_imports(program.read_text(encoding="utf-8")))
    entry = environment.entry
    if "file" in entry and environment.root is not None:
        names |= dict.fromkeys(imported_first(environment.root, str(entry["file"])))
    elif entry.get("module"):
        names[str(entry["module"]).partition(".")[0]] = None
    return tuple(names)


def _imports(source: str) -> list[str]:
    found = (item for item in find_imports(source) if not item.lazy and not item.guarded)
    return [item.name for item in found if item.name != "__future__"]


def _is_heavy(name: str) -> bool:
    return name not in sys.stdlib_module_names and name not in _OURS


def _spare_memory() -> int:
    """Return how many bytes this host could give without swapping."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return _SPARE_BYTES
