"""What the data folder keeps that can be made again, how large it is, and taking it away.

Nothing that is in use is removed: trees are locked by their readers, whoever removes one takes the
lock or leaves it. A removed tree is renamed first and deleted then, so a crash leaves a name that
the next run sweeps.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from qualityhub.engine.errors import InvalidInputError
from qualityhub.engine.sandbox import store
from qualityhub.engine.sandbox.kept import KINDS, Item
from qualityhub.engine.sandbox.owners import swept
from qualityhub.engine.sandbox.trees import remove_tree

VARIABLE = "QH_STORE_MAX_BYTES"
YOUNG_S = 600.0
"""What readers do not lock stays for so long after its last use."""

_HALF_MADE = (("staging", "run-"),)
_LOCK_KEPT_S = 86_400.0
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(?:([KMGT])(?:iB|B)?|B)?\s*", re.IGNORECASE)
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Summary:
    """One kind of things in the store.

    Attributes:
        kind: Name of the kind.
        title: For people.
        count: How many there are.
        bytes: On disk.
        in_use: How many are used by a running process.
        kept: How many no pruning removes.
        oldest: Last use of the one unused for longest, seconds since 1970; 0 where there is none.
        newest: Last use of the one used last.
    """

    kind: str
    title: str
    count: int
    bytes: int
    in_use: int
    kept: int
    oldest: float
    newest: float


@dataclass(frozen=True, slots=True)
class Pruned:
    """What pruning did, or would do.

    Attributes:
        removed: In the order of removal.
        in_use: What was due but is used by a running process, or was until just now.
        swept: Leftovers of processes that are gone.
        bytes: Freed by ``removed``.
        left_bytes: Size of what is left.
    """

    removed: tuple[Item, ...]
    in_use: tuple[Item, ...]
    swept: int
    bytes: int
    left_bytes: int


def summarize(home: Path) -> list[Summary]:
    """Return what every kind holds.

    Args:
        home: Our data folder; may be missing.
    """
    found = []
    for kind in KINDS:
        items = list(kind.items(home))
        found.append(
            Summary(
                kind.name,
                kind.title,
                len(items),
                sum(item.bytes for item in items),
                sum(kind.in_use(home, item) for item in items),
                sum(bool(item.kept) for item in items),
                min((item.used for item in items), default=0.0),
                max((item.used for item in items), default=0.0),
            )
        )
    return found


def prune(
    home: Path,
    *,
    max_bytes: int | None = None,
    unused_s: float | None = None,
    dry_run: bool = False,
) -> Pruned:
    """Remove what was unused for long, then what was unused for longest until the rest fits.

    Args:
        home: Our data folder; may be missing.
        max_bytes: Size that everything together may have; None for any.
        unused_s: Seconds without use after which a thing goes; None for never.
        dry_run: Remove nothing, say what would be.

    Raises:
        InvalidInputError: The store belongs to another user or other ids.
    """
    if not home.is_dir():
        return Pruned((), (), 0, 0, 0)
    store.claim(home)
    left_over = _sweep(home, dry_run=dry_run)
    now = time.time()
    by_name = {kind.name: kind for kind in KINDS}
    items = sorted(
        (item for kind in KINDS for item in kind.items(home)), key=lambda item: item.used
    )
    left = sum(item.bytes for item in items)
    removed: list[Item] = []
    in_use: list[Item] = []
    for item in items:
        if item.kept:
            continue
        old = unused_s is not None and now - item.used > unused_s
        if not old and (max_bytes is None or left <= max_bytes):
            continue
        kind = by_name[item.kind]
        if kind.spares_young and now - item.used < YOUNG_S:
            in_use.append(item)
            continue
        if kind.in_use(home, item) if dry_run else not kind.remove(home, item):
            in_use.append(item)
            continue
        removed.append(item)
        left -= item.bytes
    freed = sum(item.bytes for item in removed)
    return Pruned(tuple(removed), tuple(in_use), left_over, freed, left)


def size_from(text: str, name: str = "a size") -> int:
    """Return bytes from ``20G``, ``500MiB`` or a plain number; units are powers of 1024.

    Raises:
        InvalidInputError: It is no size.
    """
    match = _SIZE.fullmatch(text)
    if match is None or len(match[1]) > 15:
        raise InvalidInputError(
            "settings.not_size",
            f"{name} is {text!a}, which is no size.",
            "Write bytes or a unit: 20GiB, 500M.",
        )
    return int(float(match[1]) * _UNITS.get((match[2] or "").upper(), 1))


def cap(environ: Mapping[str, str] | None = None) -> int | None:
    """Return the size that the store may have by ``QH_STORE_MAX_BYTES``; None for any.

    Raises:
        InvalidInputError: It is no size.
    """
    text = (os.environ if environ is None else environ).get(VARIABLE, "").strip()
    return (size_from(text, VARIABLE) or None) if text else None


@contextmanager
def after_growth(home: Path) -> Iterator[None]:
    """Keep the store below its cap: prune once something was published meanwhile.

    Raises:
        InvalidInputError: The cap is no size.
    """
    most = cap()
    before = store.published()
    yield
    if most is None or store.published() == before:
        return
    with only_one(home) as mine:
        if not mine:
            return
        try:
            done = prune(home, max_bytes=most)
        except OSError as error:
            logger.warning("store_not_pruned", extra={"fields": {"error": str(error)}})
            return
    if done.removed:
        logger.info(
            "store_pruned", extra={"fields": {"removed": len(done.removed), "bytes": done.bytes}}
        )


@contextmanager
def only_one(home: Path) -> Iterator[bool]:
    """Tell whether no other process prunes now; while this lasts none will."""
    folder = home / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "prune").open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True


def _sweep(home: Path, *, dry_run: bool) -> int:
    """Remove what processes that are gone left half made; returns how many."""
    folders = {folder for kind in KINDS for folder in kind.folders}
    places = [(name, prefix) for name in sorted(folders) for prefix in (".new-", ".trash-")]
    places += [(name, ".new-") for name in ("", "rehearsal", "images/names", "reports")]
    count = 0
    for name, prefix in (*places, *_HALF_MADE):
        for left in swept(home / name, prefix):
            count += 1
            if dry_run:
                continue
            if left.is_dir() and not left.is_symlink():
                remove_tree(left)
            else:
                left.unlink(missing_ok=True)
    if not dry_run:
        _sweep_locks(home / "locks")
    return count


def _sweep_locks(folder: Path) -> None:
    """Remove locks that nobody has held for long; whoever waits for one looks again."""
    now = time.time()
    for path in folder.glob("*"):
        with contextlib.suppress(OSError):
            if path.name == "prune" or now - path.stat().st_mtime < _LOCK_KEPT_S:
                continue
            with path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
