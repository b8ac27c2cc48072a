"""What a hostile program must leave as it was: a snapshot of the host around our sandboxes."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SWITCHES = (
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/sysrq",
    "/proc/sys/kernel/modprobe",
    "/proc/sys/kernel/hostname",
    "/proc/sys/kernel/domainname",
    "/proc/sys/kernel/ns_last_pid_mode",
    "/proc/sys/vm/overcommit_memory",
    "/proc/self/oom_score_adj",
    "/proc/self/limits",
    "/proc/self/cgroup",
    "/proc/sys/fs/inotify/max_user_instances",
    "/sys/kernel/uevent_helper",
)
# Engines of other tests mount and unmount there.
_THEIRS = ("/var/lib/containers", "/var/lib/docker", "/run/", "/proc/", "/sys/")
_DRIFT_S = 0.5


@dataclass(frozen=True, slots=True)
class Host:
    """One look.

    Attributes:
        mounts: Mount points of our namespace and the launchers'.
        files: Open files of this process, then of each launcher.
        threads: Threads of this process.
        groups: Control groups of the launchers.
        children: Processes below the launchers.
        shared: Names in ``/dev/shm`` and ``/tmp`` that belong to a mapped id.
        data: Names and sizes below the data folder.
        switches: Kernel switches and our own limits.
        offset: Wall clock minus monotonic clock, seconds.
        keys: Lines of ``/proc/keys`` with the mark.
        marked: Processes that carry the mark.
    """

    mounts: frozenset[str]
    files: tuple[int, ...]
    threads: int
    groups: frozenset[str]
    children: tuple[int, ...]
    shared: frozenset[str]
    data: frozenset[tuple[str, int]]
    switches: tuple[str, ...]
    offset: float
    keys: frozenset[str]
    marked: frozenset[str]


def look(home: Path, mark: str, launchers: tuple[int, ...], owner: int) -> Host:
    """Take a snapshot.

    Args:
        home: Data folder of the sandboxes.
        mark: In the environment of every hostile process.
        launchers: Their process ids.
        owner: First host id of the mapped range; negative where there is none.
    """
    mounted = [f"self {line}" for line in mounts("self")]
    for pid in launchers:
        mounted += [f"{pid} {line}" for line in mounts(str(pid))]
    return Host(
        mounts=frozenset(mounted),
        files=tuple(len(names(f"/proc/{pid}/fd")) for pid in ("self", *launchers)),
        threads=len(names("/proc/self/task")),
        groups=frozenset(path for pid in launchers for path in groups(pid)),
        children=tuple(sorted(child for pid in launchers for child in below(pid))),
        shared=frozenset(_owned(owner)),
        data=frozenset(_sizes(home)),
        switches=tuple(_text(path) for path in SWITCHES),
        offset=time.time() - time.monotonic(),
        keys=frozenset(line for line in _text("/proc/keys").splitlines() if mark in line),
        marked=frozenset(_marked(mark)),
    )


def changed(before: Host, now: Host) -> list[str]:
    """Return sentences about what is not as it was."""
    found = []
    for name in ("mounts", "groups", "children", "shared", "data", "keys", "marked"):
        new = set(getattr(now, name)) - set(getattr(before, name))
        if new:
            found.append(f"new {name}: {sorted(new)[:5]}")
    gone = before.data - now.data
    if gone:
        found.append(f"gone from the data folder: {sorted(gone)[:5]}")
    found += [
        f"{name}: {getattr(before, name)} became {getattr(now, name)}"
        for name in ("files", "threads")
        if getattr(now, name) > getattr(before, name)
    ]
    for path, old, new in zip(SWITCHES, before.switches, now.switches, strict=True):
        if old != new:
            found.append(f"{path}: {old[:200]!r} became {new[:200]!r}")
    if abs(now.offset - before.offset) > _DRIFT_S:
        found.append(f"the clock moved by {now.offset - before.offset:.1f} s")
    return found


def settled(before: Host, again: Callable[[], Host], patience_s: float = 5.0) -> list[str]:
    """Return what is still not as it was after some patience: groups are removed a moment later."""
    end = time.monotonic() + patience_s
    while True:
        found = changed(before, again())
        if not found or time.monotonic() > end:
            return found
        time.sleep(0.05)


def below(pid: int) -> list[int]:
    """Return every process below one."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        here = waiting.pop()
        for thread in names(f"/proc/{here}/task"):
            words = _text(f"/proc/{here}/task/{thread}/children").split()
            found += [int(word) for word in words]
            waiting += [int(word) for word in words]
    return found


def resident(pid: int | str = "self") -> int:
    """Return the resident bytes of a process; 0 where it is gone."""
    words = _text(f"/proc/{pid}/statm").split()
    return int(words[1]) * resource.getpagesize() if words else 0


def groups(launcher: int) -> list[str]:
    """Return the control groups that a launcher made and did not remove."""
    # Not glob: groups of other sandboxes come and go under it.
    return [
        f"{here}/{name}"
        for here, folders, _ in os.walk("/sys/fs/cgroup")
        for name in folders
        if name.startswith(f"qh-{launcher}-")
    ]


def mounts(pid: str) -> list[str]:
    """Return the mount points of a process, but for those of container engines."""
    points = []
    for line in _text(f"/proc/{pid}/mountinfo").splitlines():
        words = line.split()
        if not words[4].startswith(_THEIRS):
            points.append(f"{words[2]} {words[4]}")
    return points


def _marked(mark: str) -> list[str]:
    found = []
    own = str(os.getpid())
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or entry.name == own:
            continue
        try:
            if f"QH_HOSTILE={mark}".encode() in (entry / "environ").read_bytes():
                found.append(entry.name)
        except OSError:
            continue
    return found


def _owned(owner: int) -> list[str]:
    found = []
    for folder in ("/dev/shm", "/tmp", "/var/tmp"):
        for entry in Path(folder).iterdir():
            try:
                uid = entry.lstat().st_uid
            except OSError:
                continue
            if uid >= owner > 0 or (owner <= 0 and folder == "/dev/shm" and uid == os.getuid()):
                found.append(str(entry))
    return found


def _sizes(folder: Path) -> list[tuple[str, int]]:
    found = []
    for here, _, files in os.walk(folder):
        for name in files:
            path = Path(here) / name
            try:
                found.append((str(path.relative_to(folder)), path.lstat().st_size))
            except OSError:
                continue
    return found


def names(folder: str) -> list[str]:
    """Return the names in a folder; none where it is gone."""
    try:
        return [path.name for path in Path(folder).iterdir()]
    except OSError:
        return []


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
