"""The kinds of things in the store: how each is listed, measured, locked and removed.

:data:`KINDS` is the list that showing and pruning go through; another room adds its own kind to it
when it is imported.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from qualityhub.engine.sandbox import store
from qualityhub.engine.sandbox.images.names import named_digests
from qualityhub.engine.sandbox.owners import label
from qualityhub.engine.sandbox.trees import remove_tree, size_of

_NAME = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_ABANDONED_S = 3600.0


@dataclass(frozen=True, slots=True)
class Item:
    """One thing of a kind.

    Attributes:
        kind: Name of its kind.
        name: Its own, within the kind.
        bytes: On disk.
        used: Last use, seconds since 1970; to a minute.
        kept: Why no pruning removes it; empty for most.
    """

    kind: str
    name: str
    bytes: int
    used: float
    kept: str = ""


class Kind(Protocol):
    """One kind of things below the data folder that can be made again.

    Attributes:
        name: Short, stable.
        title: For people.
        folders: Below the data folder, where half-made and half-removed ones may lie.
        spares_young: Whether its readers hold no lock, so that what was just used must stay.
    """

    name: str
    title: str
    folders: tuple[str, ...]
    spares_young: bool

    def items(self, home: Path) -> Iterator[Item]:
        """Yield everything of the kind, in any order."""
        ...

    def in_use(self, home: Path, item: Item) -> bool:
        """Say whether a running process uses it."""
        ...

    def remove(self, home: Path, item: Item) -> bool:
        """Remove it in one step as readers see it; False where it is in use."""
        ...


class Trees:
    """Published trees: ``FOLDER/NAME`` with its facts beside it."""

    def __init__(self, folder: str, title: str, *, spares_young: bool = False) -> None:
        """Name the store's folder and what is in it."""
        self.name = folder
        self.spares_young = spares_young
        self.title = title
        self.folders: tuple[str, ...] = (folder,)

    def items(self, home: Path) -> Iterator[Item]:
        """Yield every tree; facts whose tree is long gone are removed on the way."""
        folder = home / self.name
        named = named_digests(home) if self.name == "images" else frozenset()
        for record in folder.glob("*.json"):
            if not _NAME.fullmatch(record.stem):
                continue
            tree = record.with_suffix("")
            facts = store.read_json(record)
            try:
                used = record.stat().st_mtime
            except FileNotFoundError:
                continue
            if facts is None or not tree.is_dir():
                if time.time() - used > _ABANDONED_S:
                    record.unlink(missing_ok=True)
                continue
            taken = facts.get("bytes")
            yield Item(
                self.name,
                record.stem,
                taken if isinstance(taken, int) else size_of(tree),
                used,
                "imported under a name" if facts.get("digest") in named else "",
            )

    def in_use(self, home: Path, item: Item) -> bool:
        """Say whether somebody holds a lock on the tree."""
        file = _alone(home / self.name / item.name)
        if file is None:
            return (home / self.name / item.name).exists()
        os.close(file)
        return False

    def remove(self, home: Path, item: Item) -> bool:
        """Rename the tree away under its lock, then delete it."""
        tree = home / self.name / item.name
        file = _alone(tree)
        if file is None:
            return not tree.exists()
        trash = tree.with_name(f".trash-{label()}-{secrets.token_hex(4)}")
        try:
            tree.rename(trash)
        except FileNotFoundError:
            return True
        finally:
            os.close(file)
        tree.with_name(tree.name + ".json").unlink(missing_ok=True)
        remove_tree(trash)
        return True


class Documents:
    """Small documents by name, some with files beside them of the same stem."""

    spares_young = False

    def __init__(self, folder: str, title: str) -> None:
        """Name the store's folder and what is in it."""
        self.name = folder
        self.title = title
        self.folders: tuple[str, ...] = (folder,)

    def items(self, home: Path) -> Iterator[Item]:
        """Yield every stem with the size of all its files."""
        sizes: dict[str, tuple[int, float]] = {}
        with contextlib.suppress(OSError), os.scandir(home / self.name) as entries:
            for entry in entries:
                stem = entry.name.partition(".")[0]
                with contextlib.suppress(FileNotFoundError):
                    info = entry.stat(follow_symlinks=False)
                    if stem and entry.is_file(follow_symlinks=False):
                        size, used = sizes.get(stem, (0, 0.0))
                        taken = size + info.st_blocks * 512
                        sizes[stem] = (taken, max(used, info.st_mtime))
        for stem, (size, used) in sizes.items():
            yield Item(self.name, stem, size, used)

    def in_use(self, home: Path, item: Item) -> bool:
        """Say no: a document is read at once."""
        del home, item
        return False

    def remove(self, home: Path, item: Item) -> bool:
        """Remove the stem's files, the document that makes them count first."""
        found = (home / self.name).glob(f"{item.name}.*")
        for path in sorted(found, key=lambda path: path.suffix != ".json"):
            path.unlink(missing_ok=True)
        return True


class Files:
    """Files below folders of folders, named by what they hold."""

    spares_young = False

    def __init__(self, folder: str, title: str) -> None:
        """Name the store's folder and what is in it."""
        self.name = folder
        self.title = title
        self.folders: tuple[str, ...] = (folder,)

    def items(self, home: Path) -> Iterator[Item]:
        """Yield every file, also what a killed writer left an hour ago and more."""
        top = home / self.name
        waiting = [str(top)]
        now = time.time()
        while waiting:
            with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                        continue
                    with contextlib.suppress(FileNotFoundError):
                        info = entry.stat(follow_symlinks=False)
                        if entry.name.startswith(".new-") and now - info.st_mtime < _ABANDONED_S:
                            continue
                        name = os.path.relpath(entry.path, top)
                        yield Item(self.name, name, info.st_blocks * 512, info.st_mtime)

    def in_use(self, home: Path, item: Item) -> bool:
        """Say no: a file is read at once."""
        del home, item
        return False

    def remove(self, home: Path, item: Item) -> bool:
        """Remove the file and the folders that it leaves empty."""
        path = home / self.name / item.name
        path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            for parent in path.parents:
                if parent == home / self.name:
                    break
                parent.rmdir()
        return True


def _alone(tree: Path) -> int | None:
    """Return the open tree under an exclusive lock, None where it is in use or gone."""
    try:
        file = os.open(tree, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        return None
    return file


KINDS: list[Kind] = [
    Trees("images", "files of images"),
    Documents("images/builds", "what was built, with its log"),
    Trees("layers", "dependency layers"),
    Trees("distributions", "downloaded distributions", spares_young=True),
    Trees("built", "wheels built from source", spares_young=True),
    Trees("rehearsed", "files of rehearsed images"),
    Trees("trees", "unpacked packages", spares_young=True),
    Documents("resolved", "locked dependencies"),
    Files("trials", "trial results"),
    Files("evidence", "outputs of trials"),
]
"""In the order in which they are shown."""
