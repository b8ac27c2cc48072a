"""Cuts result files into requests of whole rows."""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from qualityhub.engine.results.rows import RolloutRow

REQUEST_BYTES = 32 * 1024 * 1024
_GZIP = 31


@dataclass(frozen=True, slots=True)
class Part:
    """One request's worth of rows.

    Attributes:
        number: Counts from 1.
        rows: How many.
        body: NDJSON, gzip'ed.
        key: Idempotency key: run, position and content, so that an upload that is repeated after
            a break changes nothing.
    """

    number: int
    rows: int
    body: bytes
    key: str


def parts(
    run: str, blocks: Iterable[Sequence[RolloutRow]], limit: int = REQUEST_BYTES
) -> Iterator[Part]:
    """Yield the requests that carry the rows, each at most ``limit`` bytes before compression."""
    import msgspec  # noqa: PLC0415 - not needed to talk to a hub about anything else.

    encoder = msgspec.json.Encoder()
    lines: list[bytes] = []
    size, number = 0, 0
    for block in blocks:
        for row in block:
            filled = {
                name: value
                for name in row.__struct_fields__
                if (value := getattr(row, name)) is not None
            }
            line = encoder.encode(filled) + b"\n"
            if lines and size + len(line) > limit:
                number += 1
                yield _part(run, number, lines)
                lines, size = [], 0
            lines.append(line)
            size += len(line)
    if lines:
        yield _part(run, number + 1, lines)


def file_blocks(paths: Iterable[Path]) -> Iterator[list[RolloutRow]]:
    """Yield the rows of result files (CSV or NDJSON, plain or gzip), checked line by line.

    Raises:
        InvalidInputError: A file or row that cannot be used, as ``file:line``.
    """
    from qualityhub.engine.results.files import read_rows  # noqa: PLC0415 - likewise.

    for path in paths:
        yield from read_rows(path)


def _part(run: str, number: int, lines: list[bytes]) -> Part:
    plain = b"".join(lines)
    digest = hashlib.sha256(run.encode() + b"\0%d\0" % number + plain).hexdigest()
    packer = zlib.compressobj(level=1, wbits=_GZIP)
    return Part(number, len(lines), packer.compress(plain) + packer.flush(), f"rows-{digest}")
