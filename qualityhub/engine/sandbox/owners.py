"""Names of half-made things that tell whose they are: a process of a boot, or of none any more."""

from __future__ import annotations

import fcntl
import functools
import os
import time
from collections.abc import Iterator
from pathlib import Path

_FOLDER_AFTER_S = 60.0
_FILE_AFTER_S = 3600.0


@functools.cache
def _here() -> str:
    """Return what a process id means anything within: this boot's process id namespace."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
        namespace = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return "0"
    return f"{boot.replace('-', '')[:12]}.{namespace}"


def _started(pid: int) -> str:
    """Return when a process began, in ticks since the boot; empty where it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
    fields = text.rpartition(")")[2].split()
    # A dead process that nobody has waited for yet does nothing any more.
    return "" if fields[:1] in (["Z"], ["X"]) else fields[19]


def label() -> str:
    """Return what stands for this process in a name: id, begin, boot and namespace."""
    pid = os.getpid()
    return f"{pid}.{_started(pid)}.{_here()}"


def alive(text: str) -> bool | None:
    """Say whether the process of a label still runs; None where that cannot be told from here."""
    pid, _, rest = text.partition(".")
    began, _, where = rest.partition(".")
    if not pid.isdigit() or where != _here():
        return None
    return began != "" and _started(int(pid)) == began


def swept(folder: Path, prefix: str = ".new-") -> Iterator[Path]:
    """Yield what is left in a folder by processes that are gone.

    A folder whose owner cannot be told counts once nobody holds a lock on it, a file after an hour.

    Args:
        folder: May be missing.
        prefix: Of half-made things; the label follows, up to a dash.
    """
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208 - names alone.
    except OSError:
        return
    for name in names:
        if not name.startswith(prefix):
            continue
        path = folder / name
        lives = alive(name.removeprefix(prefix).partition("-")[0])
        if lives is False or (lives is None and _is_idle(path)):
            yield path


def _is_idle(path: Path) -> bool:
    try:
        age = time.time() - path.lstat().st_mtime
        if not path.is_dir():
            return age > _FILE_AFTER_S
        if age < _FOLDER_AFTER_S:
            return False
        file = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(file)
