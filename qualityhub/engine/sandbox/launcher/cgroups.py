"""Control groups below our own, per controller, version 1 or 2, where we may make them."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator

# Of "cpu" nothing is set: being in groups of their own, trials share the processors by trial,
# whatever number of processes and sessions one of them starts.
CONTROLLERS = ("memory", "pids", "cpuacct", "cpu")
_PREFIX = "qh-"
# bubblewrap's own two processes and the moment between its fork and ours count too.
_OWN_PIDS = 3


class Hierarchy:
    """Where groups of one or more controllers are made.

    Attributes:
        version: 1 or 2.
        folder: Our own group, as a path in the file system.
        controllers: Those that can be limited below it.
    """

    __slots__ = ("controllers", "folder", "version")

    def __init__(self, version: int, folder: str, controllers: tuple[str, ...]) -> None:
        self.version = version
        self.folder = folder
        self.controllers = controllers


def detect(memberships: str, mounts: str) -> list[Hierarchy]:
    """Return the hierarchies in which this process may make groups of its own.

    Args:
        memberships: Text of ``/proc/self/cgroup``.
        mounts: Text of ``/proc/self/mountinfo``.
    """
    places = list(_mounted(mounts))
    found: list[Hierarchy] = []
    for line in memberships.splitlines():
        _, _, rest = line.partition(":")
        names, _, group = rest.partition(":")
        for version, mounted, root, point in places:
            folder = _below(group, root, point)
            if folder is None:
                continue
            if not names and version == 2:
                found.extend(_version_two(folder))
                break
            wanted = tuple(name for name in names.split(",") if name in CONTROLLERS)
            if version == 1 and wanted and set(names.split(",")) <= mounted:
                if os.access(folder, os.W_OK) and _can_make(folder):
                    found.append(Hierarchy(1, folder, wanted))
                break
    return found


def _mounted(text: str) -> Iterator[tuple[int, frozenset[str], str, str]]:
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        fields, kind = left.split(" "), right.split(" ")
        if len(fields) < 5 or len(kind) < 3:
            continue
        if kind[0] == "cgroup2":
            yield 2, frozenset(), fields[3], fields[4]
        elif kind[0] == "cgroup":
            yield 1, frozenset(kind[2].split(",")), fields[3], fields[4]


def _below(group: str, root: str, point: str) -> str | None:
    if root == "/":
        return point + group.rstrip("/")
    if group == root or group.startswith(root + "/"):
        return point + group[len(root) :]
    return None


def _version_two(folder: str) -> Iterator[Hierarchy]:
    for place in (folder, os.path.dirname(folder) if _delegated(os.path.dirname(folder)) else ""):
        if not place or not os.access(place, os.W_OK):
            continue
        with contextlib.suppress(OSError):
            available = _read(place + "/cgroup.controllers").split()
            wanted = [name for name in CONTROLLERS if name in available]
            if "memory" not in wanted and "pids" not in wanted:
                continue
            enabled = _read(place + "/cgroup.subtree_control").split()
            missing = [name for name in wanted if name not in enabled and name != "cpu"]
            if missing:
                _write(place + "/cgroup.subtree_control", " ".join("+" + name for name in missing))
            if "cpu" in wanted and "cpu" not in enabled:
                # Not while a process with real-time priority is anywhere below.
                with contextlib.suppress(OSError):
                    _write(place + "/cgroup.subtree_control", "+cpu")
            if _can_make(place):
                yield Hierarchy(2, place, (*wanted, "cpuacct"))
                return


def _delegated(folder: str) -> bool:
    for name in ("user.delegate", "trusted.delegate"):
        with contextlib.suppress(OSError):
            if os.getxattr(folder, name) == b"1":
                return True
    return False


def _can_make(folder: str) -> bool:
    probe = f"{folder}/{_PREFIX}{os.getpid()}-probe"
    try:
        os.mkdir(probe)
        os.rmdir(probe)
    except OSError:
        return False
    return True


def sweep(hierarchies: list[Hierarchy]) -> None:
    """Remove groups whose launcher is gone, left behind by a kill or a crash."""
    for hierarchy in hierarchies:
        with contextlib.suppress(OSError):
            for name in os.listdir(hierarchy.folder):
                owner = name.removeprefix(_PREFIX).split("-")[0]
                if (
                    name.startswith(_PREFIX)
                    and owner.isdigit()
                    and not os.path.exists(f"/proc/{owner}")
                ):
                    remove(f"{hierarchy.folder}/{name}")


def remove(folder: str, patience_s: float = 0.0) -> bool:
    """End what is left in a group and remove it; False where it stayed busy."""
    end = time.monotonic() + patience_s
    while True:
        try:
            os.rmdir(folder)
        except FileNotFoundError:
            return True
        except OSError:
            with contextlib.suppress(OSError, ValueError):
                for pid in _read(folder + "/cgroup.procs").split():
                    os.kill(int(pid), 9)
            if time.monotonic() >= end:
                return False
            time.sleep(0.002)
        else:
            return True


class Group:
    """The groups of one command, one per hierarchy.

    Files are opened at once: after the keeper gave up its rights it can still read and write them.
    """

    def __init__(
        self, hierarchies: list[Hierarchy], name: str, *, memory_bytes: int, pids: int
    ) -> None:
        """Make the groups.

        Args:
            hierarchies: From :func:`detect`.
            name: Unique on this host.
            memory_bytes: Limit of the tree; tmpfs pages of the world count too.
            pids: Processes and threads of the command.

        Raises:
            OSError: A group could not be made.
        """
        self.folders: list[str] = []
        self.limited: set[str] = set()
        self._procs: list[int] = []
        self._events = self._peak = self._cpu = -1
        self._cpu_version = 1
        # What was counted before the present command, where one group serves several in a row.
        self._cpu_before = 0.0
        self._kills_before = 0
        for hierarchy in hierarchies:
            folder = f"{hierarchy.folder}/{name}"
            os.mkdir(folder)
            self.folders.append(folder)
            if "memory" in hierarchy.controllers:
                self._limit_memory(hierarchy.version, folder, memory_bytes)
            if "pids" in hierarchy.controllers:
                _write(folder + "/pids.max", str(pids + _OWN_PIDS))
                self.limited.add("pids")
            if "cpuacct" in hierarchy.controllers:
                self._cpu_version = hierarchy.version
                source = "cpuacct.usage" if hierarchy.version == 1 else "cpu.stat"
                self._cpu = _open(f"{folder}/{source}")
            # Version 1 moves a lone thread without the global lock that a whole process needs; that
            # lock can take tens of milliseconds. What enters here is freshly forked: one thread.
            door = "tasks" if hierarchy.version == 1 else "cgroup.procs"
            self._procs.append(os.open(f"{folder}/{door}", os.O_WRONLY | os.O_CLOEXEC))

    def _limit_memory(self, version: int, folder: str, size: int) -> None:
        if version == 1:
            _write(folder + "/memory.limit_in_bytes", str(size))
            with contextlib.suppress(OSError):
                _write(folder + "/memory.memsw.limit_in_bytes", str(size))
            self._events = _open(folder + "/memory.oom_control")
            self._peak = _open(folder + "/memory.max_usage_in_bytes", os.O_RDWR)
        else:
            _write(folder + "/memory.max", str(size))
            with contextlib.suppress(OSError):
                _write(folder + "/memory.swap.max", "0")
            self._events = _open(folder + "/memory.events")
            with contextlib.suppress(OSError):
                self._peak = _open(folder + "/memory.peak", os.O_RDWR)
        self.limited.add("memory")

    def enter(self) -> None:
        """Move the calling process into the groups."""
        for file in self._procs:
            os.write(file, b"0")

    def admit(self, pid: int) -> None:
        """Move a process of one thread into the groups, and count from here on.

        Raises:
            OSError: It is gone.
        """
        for file in self._procs:
            os.write(file, str(pid).encode())
        self._cpu_before = self._cpu_total() or 0.0
        self._kills_before = self._kills()
        try:
            os.pwrite(self._peak, b"0", 0)
        except OSError:
            # An older kernel: the largest of all commands so far says nothing of this one.
            self._peak = -1

    def out_of_memory(self) -> bool:
        """Whether the kernel killed anything of the tree for its memory."""
        return self._kills() > self._kills_before

    def _kills(self) -> int:
        for line in _again(self._events).splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
        return 0

    def peak_bytes(self) -> int:
        """Largest memory use, 0 where the kernel does not say."""
        text = _again(self._peak).strip()
        return int(text) if text.isdigit() else 0

    def cpu_s(self) -> float | None:
        """CPU seconds of the tree, None where the kernel does not say."""
        total = self._cpu_total()
        return None if total is None else max(0.0, total - self._cpu_before)

    def _cpu_total(self) -> float | None:
        text = _again(self._cpu)
        if self._cpu_version == 1:
            return int(text) / 1e9 if text.strip().isdigit() else None
        for line in text.splitlines():
            name, _, count = line.partition(" ")
            if name == "usage_usec":
                return int(count) / 1e6
        return None


def _open(path: str, how: int = os.O_RDONLY) -> int:
    try:
        return os.open(path, how | os.O_CLOEXEC)
    except PermissionError:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def _again(file: int) -> str:
    if file < 0:
        return ""
    try:
        return os.pread(file, 65536, 0).decode()
    except OSError:
        return ""


def _read(path: str) -> str:
    with open(path, encoding="ascii") as file:
        return file.read()


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
