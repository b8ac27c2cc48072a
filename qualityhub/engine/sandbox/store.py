"""Content-addressed folders below our data folder: locks, pins, atomic publication, look-up.

Of every tree there is ``KIND/NAME`` and, beside it, its facts ``KIND/NAME.json``; both together
make it valid. The facts are written first, so it appears and, when its folder is renamed away,
vanishes in one step. A builder holds the lock of what it makes, a reader a shared lock on the
folder itself (a *pin*), and whoever removes it an exclusive one, for which it never waits. All of
these end with the process that holds them. Network file systems without such locks do not do.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import resource
import tempfile
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from qualityhub.engine.errors import InvalidInputError, MachineryError
from qualityhub.engine.sandbox import idmaps
from qualityhub.engine.sandbox.owners import label, swept
from qualityhub.engine.sandbox.trees import remove_tree, size_of

RECORD = "store.json"
_STAMP_EVERY_S = 60.0
_libc = ctypes.CDLL(None, use_errno=True)


class _Growth:
    """How often this process has published something."""

    times = 0


def published() -> int:
    """Return how often this process has published something."""
    return _Growth.times


def short(digest: str) -> str:
    """Return the part of a digest that names a folder: hex alone, 40 characters."""
    return digest.rpartition(":")[2][:40]


class _Hold:
    """An open folder under a shared lock, closed with its last user."""

    __slots__ = ("__weakref__", "file")

    def __init__(self, file: int) -> None:
        self.file = file

    def __del__(self) -> None:
        os.close(self.file)

    def is_of(self, path: Path) -> bool:
        """Whether the folder still lies at a path."""
        try:
            here, there = os.fstat(self.file), path.stat()
        except OSError:
            return False
        return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)


class Pin:
    """Keeps a tree from being removed until it is released or forgotten."""

    __slots__ = ("_hold",)

    def __init__(self, hold: _Hold) -> None:
        """Share in a lock."""
        self._hold: _Hold | None = hold

    def __deepcopy__(self, memo: dict[int, Any]) -> Pin:
        """Return itself: it stays what it is however often its holder is copied."""
        return self

    def release(self) -> None:
        """Let go now."""
        self._hold = None


# One open file per tree, however many worlds of this process use it.
_holds: weakref.WeakValueDictionary[str, _Hold] = weakref.WeakValueDictionary()


def pin(path: Path) -> Pin | None:
    """Keep a published tree from being removed; None where it is gone already.

    The lock is a file's: a process forked meanwhile holds it too until it ends.

    Raises:
        MachineryError: This process may open no more files.
    """
    known = _holds.get(str(path))
    if known is not None and known.is_of(path):
        return Pin(known)
    try:
        file = _open_folder(path)
    except OSError as error:
        if error.errno in {errno.EMFILE, errno.ENFILE}:
            raise MachineryError(
                "store.open_files",
                "this process uses more trees of the store than it may open files",
                "Raise the limit of open files: ulimit -n.",
            ) from error
        return None
    hold = _Hold(file)
    try:
        fcntl.flock(file, fcntl.LOCK_SH)
    except OSError:
        return None
    # It may have been renamed away, and even made anew, while we waited.
    if not hold.is_of(path):
        return None
    _holds[str(path)] = hold
    return Pin(hold)


def _open_folder(path: Path) -> int:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    try:
        return os.open(path, flags)
    except OSError as error:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if error.errno != errno.EMFILE or soft == hard:
            raise
        # A thousand tasks with an image each need as many; what we may have is enough for that.
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        return os.open(path, flags)


@contextmanager
def locked(home: Path, kind: str, name: str) -> Iterator[None]:
    """Hold the one lock of a thing while it is made, across threads and processes.

    Args:
        home: Our data folder.
        kind: Store, e.g. ``layers``.
        name: What is made.
    """
    folder = home / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{kind}-{short(name)}"
    while True:
        # Each holder opens the file anew, so threads of one process exclude each other too.
        with path.open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                if os.fstat(file.fileno()).st_ino != path.stat().st_ino:
                    continue
            except FileNotFoundError:
                continue  # Swept while we waited.
            yield
            return


@contextmanager
def fresh(home: Path, kind: str) -> Iterator[Path]:
    """Give a path beside a store's folders to build at; what is left of it is removed.

    Raises:
        InvalidInputError: The store was made for other user ids.
    """
    claim(home)
    folder = home / kind
    folder.mkdir(parents=True, exist_ok=True)
    for left in swept(folder):
        remove_tree(left)
    with tempfile.TemporaryDirectory(
        dir=folder, prefix=f".new-{label()}-", ignore_cleanup_errors=True
    ) as made:
        place = Path(made) / "tree"
        held = pin(Path(made))
        try:
            yield place
        finally:
            remove_tree(place)
            if held is not None:
                held.release()


def claim(home: Path) -> None:
    """Record whose ids the trees of a store belong to, or check that they are ours.

    Raises:
        InvalidInputError: They are another user's or another range's.
    """
    mine = {"user": os.geteuid(), "first_id": idmaps.current().owner}
    path = home / RECORD
    known = read_json(path)
    if known is None:
        home.mkdir(parents=True, exist_ok=True)
        write_json(path, {**mine, "version": 1})
        path.chmod(0o644)
        return
    theirs = {key: known.get(key) for key in mine}
    if theirs != mine:
        raise InvalidInputError(
            "store.other_ids",
            f"The data folder {home} belongs to user {theirs['user']} and {_range(theirs)}, "
            f"but this process is user {mine['user']} with {_range(mine)}.",
            "Run as the same user, or name another data folder in QH_HOME: files of images keep "
            "their owners as ids of that range.",
        )


def publish(home: Path, kind: str, digest: str, place: Path, facts: dict[str, Any]) -> Path:
    """Move a finished tree to its final place with its facts; what is there already wins."""
    final = home / kind / short(digest)
    with locked(home, f"publish-{kind.replace('/', '-')}", digest):
        if lookup(home, kind, digest) is not None:
            return final
        if final.exists():
            remove_tree(final)
        taken = size_of(place)
        # Its files reach the disk before the name that makes them count.
        _flush(place)
        write_json(
            final.with_name(final.name + ".json"), {**facts, "digest": digest, "bytes": taken}
        )
        place.rename(final)
        _Growth.times += 1
    return final


def lookup(home: Path, kind: str, digest: str) -> tuple[Path, dict[str, Any]] | None:
    """Return a published tree and its facts, or None; notes that it was used.

    Pin the path before relying on it for longer.
    """
    final = home / kind / short(digest)
    record = final.with_name(final.name + ".json")
    facts = read_json(record)
    if facts is None or facts.get("digest") != digest or not final.is_dir():
        return None
    touch(record)
    return final, facts


def touch(path: Path) -> None:
    """Note that something was used: its time of change is its last use, to a minute."""
    with contextlib.suppress(OSError):
        if time.time() - path.stat().st_mtime > _STAMP_EVERY_S:
            os.utime(path)


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write a document so that a reader sees the old or the new one, also after a crash."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".new-{label()}-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(value, file)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def read_json(path: Path) -> dict[str, Any] | None:
    """Return a document written by :func:`write_json`, or None where there is none."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def _range(ids: dict[str, Any]) -> str:
    first = ids["first_id"]
    return "no range of ids" if first is None or first < 0 else f"the range of ids from {first}"


def _flush(place: Path) -> None:
    file = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if not hasattr(_libc, "syncfs") or _libc.syncfs(file) != 0:
            os.sync()
    finally:
        os.close(file)
