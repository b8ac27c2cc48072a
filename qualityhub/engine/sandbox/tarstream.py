"""Read foreign tar streams entry by entry within bounds: headers, names and sizes may all lie."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from typing import IO, Protocol, cast

HEADER_BYTES = 8 * 1024 * 1024
"""Most that is read to get from the end of one entry to the content of the next.

A header may claim to be followed by gigabytes of extended attributes, or never to end.
"""
PIECE = 1024 * 1024
_BUFFER = 256 * 1024
_BROKEN = (OverflowError, AttributeError, IndexError, TypeError, MemoryError, RecursionError)
LONGEST_PATH = 4096
DEEPEST_PATH = 256


class Source(Protocol):
    """Whatever can be read from."""

    def read(self, size: int, /) -> bytes:
        """Return at most ``size`` bytes, none at the end."""
        ...


class _Bounded:
    """A stream that refuses to give more than a budget until it is refilled."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.left: int | None = None

    def read(self, size: int) -> bytes:
        data = self._source.read(size)
        if self.left is not None:
            # The end of the stream costs too: a reader that waits for more would wait for ever.
            self.left -= max(len(data), 512)
            if self.left < 0:
                raise ValueError("a header in it is longer than any header is")
        return data


def entries(source: Source) -> Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]:
    """Yield every entry with its content, None for what has none; content is skipped if unread.

    Raises:
        ValueError: The stream is no tar, ends early, or a header is out of bounds.
        tarfile.TarError: Same.
    """
    bounded = _Bounded(source)
    bounded.left = HEADER_BYTES
    with tarfile.open(
        fileobj=cast("IO[bytes]", bounded),
        mode="r|",
        bufsize=_BUFFER,
        encoding="utf-8",
        errors="surrogateescape",
    ) as archive:
        while True:
            bounded.left = HEADER_BYTES
            try:
                entry = archive.next()
            except _BROKEN as error:
                raise ValueError(f"a header in it is broken: {type(error).__name__}") from error
            if entry is None:
                return
            # The list would grow with the archive.
            archive.members = []  # type: ignore[attr-defined]  # undocumented, but there is no other way
            if entry.size < 0:
                raise ValueError(f"{entry.name!a} has a negative size")
            bounded.left = None
            content = archive.extractfile(entry) if entry.isreg() else None
            yield entry, content
            if content is not None:
                while content.read(PIECE):
                    pass


def parts_of(name: str) -> list[str]:
    """Return the parts of an entry's name; none for the root itself.

    Raises:
        ValueError: It leaves the archive, or no file system could hold it.
    """
    parts = [part for part in name.split("/") if part not in {"", "."}]
    if ".." in parts or "\0" in name:
        raise ValueError(f"{shown(name)} leaves the archive")
    if len(name) > LONGEST_PATH or len(parts) > DEEPEST_PATH:
        raise ValueError(f"{shown(name)} is longer or deeper than a path may be")
    return parts


def shown(name: str) -> str:
    """Return a foreign name that is safe to print."""
    text = ascii(name)
    return text if len(text) <= 200 else text[:197] + "...'"
