"""Removes blobs that no row names any more."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from qualityhub.engine.blobs import BlobStore, Stored

AT_ONCE = 1000
"""Names that are asked about at once."""


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep did.

    Attributes:
        seen: Blobs that were there.
        removed: Blobs removed.
        freed_bytes: What they took.
        ended: Whether it came to the end; else the next one goes on.
    """

    seen: int
    removed: int
    freed_bytes: int
    ended: bool


def sweep(
    store: BlobStore,
    referenced: Callable[[Sequence[str]], Collection[str]],
    *,
    grace_s: float,
    most: int,
) -> Swept:
    """Remove blobs that nobody names any more and that nobody put within the grace.

    Args:
        store: The store; the blobs of one kind of rows alone.
        referenced: Returns which of some names are in use, asked after their age was seen. A row
            that is written later belongs to a blob that was put, and so made young, before it.
        grace_s: Longer than anything between a blob and the commit of its row.
        most: Blobs to remove at most.
    """
    seen = removed = freed = 0
    waiting: list[Stored] = []

    def judge() -> None:
        nonlocal removed, freed
        used = set(referenced([blob.digest for blob in waiting]))
        for blob in waiting:
            if blob.digest in used or removed >= most:
                continue
            if store.delete(blob.digest, older_than_s=grace_s):
                removed += 1
                freed += blob.size
        waiting.clear()

    store.tidy(grace_s)
    for blob in store.iterate():
        seen += 1
        if blob.age_s >= grace_s:
            waiting.append(blob)
        if len(waiting) >= AT_ONCE:
            judge()
            if removed >= most:
                return Swept(seen, removed, freed, ended=False)
    if waiting:
        judge()
    return Swept(seen, removed, freed, ended=removed < most)
