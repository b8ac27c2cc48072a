"""Content-addressed folders below our data folder: locks, atomic publication, look-up."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from qualityhub.engine.sandbox.trees import remove_tree


def short(digest: str) -> str:
    """Return the part of a digest that names a folder: hex alone, 40 characters."""
    return digest.rpartition(":")[2][:40]


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
    # Each holder opens the file anew, so threads of one process exclude each other too.
    with (folder / f"{kind}-{short(name)}").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)


@contextmanager
def fresh(home: Path, kind: str) -> Iterator[Path]:
    """Give a path beside a store's folders to build at; what is left of it is removed."""
    store = home / kind
    store.mkdir(parents=True, exist_ok=True)
    _sweep(store)
    with tempfile.TemporaryDirectory(dir=store, prefix=f".new-{os.getpid()}-") as folder:
        place = Path(folder) / "tree"
        try:
            yield place
        finally:
            remove_tree(place)


def publish(home: Path, kind: str, digest: str, place: Path, facts: dict[str, Any]) -> Path:
    """Move a finished tree to its final place and write its facts; the facts make it valid."""
    final = home / kind / short(digest)
    if final.exists():
        # A crash between the two steps: the tree is whole, the facts are not there yet.
        remove_tree(final)
    place.rename(final)
    write_json(final.with_name(final.name + ".json"), {**facts, "digest": digest})
    return final


def lookup(home: Path, kind: str, digest: str) -> tuple[Path, dict[str, Any]] | None:
    """Return a published tree and its facts, or None."""
    final = home / kind / short(digest)
    facts = read_json(final.with_name(final.name + ".json"))
    if facts is None or facts.get("digest") != digest or not final.is_dir():
        return None
    return final, facts


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write a document so that a reader sees the old or the new one, also after a crash."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
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


def _sweep(store: Path) -> None:
    """Remove what a killed builder left: its process id is in the name."""
    for left in store.glob(".new-*-*"):
        owner = left.name.split("-")[1]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists():
            remove_tree(left / "tree")
            with contextlib.suppress(OSError):
                shutil.rmtree(left)
