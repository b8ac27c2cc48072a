"""From a request body to blocks of whole lines: decompressed, counted and capped as it flows.

Memory stays at one block plus one line, whatever the sender claims about its length.
"""

from __future__ import annotations

import zlib
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING

from qualityhub.engine.errors import InvalidInputError, LimitExceededError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BLOCK_BYTES = 256 * 1024
DECODED_BYTES = 64 * 1024 * 1024
LINE_BYTES = 1024 * 1024
# The shortest row has 37 bytes: more lines than this are blank ones, sent to keep us busy.
MAX_LINES = 2_500_000
# Gzip members may be empty, so a cap on what comes out does not bound what goes in.
WIRE_BYTES = DECODED_BYTES + 1024 * 1024
GZIP_WINDOW = 31
ENCODINGS = ("identity", "gzip")


class RowStream:
    """The decoded lines of one request body.

    Args:
        read: Returns up to the asked number of bytes, ``b""`` at the end.
        encoding: ``Content-Encoding`` of the body, ``""``, ``identity`` or ``gzip``.
        limit: Bytes accepted after decoding.
        expected: ``Content-Length`` where the sender named one. A sender that dies leaves a body
            that merely ends: only its length tells that rows are missing.

    Raises:
        InvalidInputError: An encoding this endpoint does not know (``results.encoding``).
    """

    def __init__(
        self,
        read: Callable[[int], bytes],
        encoding: str = "",
        *,
        limit: int = DECODED_BYTES,
        expected: int | None = None,
    ) -> None:
        name = (encoding or "identity").strip().lower()
        if name not in ENCODINGS:
            raise InvalidInputError(
                "results.encoding",
                f"Content-Encoding {encoding!r} is not supported.",
                "Send the rows as they are or with gzip.",
            )
        self._read = read
        self._gzip = name == "gzip"
        self._limit = limit
        self._expected = expected
        self._digest = sha256()
        self.wire_bytes = 0
        self.decoded_bytes = 0

    @property
    def digest(self) -> str:
        """Hex sha256 of the decoded bytes seen so far; equal for any compression of the same."""
        return self._digest.hexdigest()

    def digest_of_all(self) -> str:
        """Return the digest of the whole body, reading what nobody has read yet."""
        for _ in self.blocks():
            pass
        return self.digest

    def blocks(self) -> Iterator[tuple[bytes, int]]:
        """Yield ``(whole lines, number of the first line)``; lines count from 1.

        Raises:
            LimitExceededError: ``results.too_large`` or ``results.line_too_long``.
            InvalidInputError: ``results.bad_gzip`` or ``results.cut_off``.
        """
        rest = b""
        line = 1
        for piece in self._decoded():
            held = rest + piece if rest else piece
            cut = held.rfind(b"\n") + 1
            if cut:
                block, rest = held[:cut], held[cut:]
                yield block, line
                line += block.count(b"\n")
                if line > MAX_LINES:
                    raise LimitExceededError(
                        "results.too_large",
                        f"The request has more than {MAX_LINES:,} lines.",
                        "Leave blank lines out.",
                    )
            else:
                rest = held
            if len(rest) > LINE_BYTES:
                raise LimitExceededError(
                    "results.line_too_long",
                    f"Line {line} is longer than {LINE_BYTES // 1024} KiB.",
                    "Keep large outputs elsewhere and name them in trace_ref.",
                )
        if rest:
            yield rest, line

    def drain(self, limit: int = WIRE_BYTES) -> None:
        """Read and drop what is left, at most ``limit`` bytes.

        A refusal sent while the sender still writes would reach it as a broken connection.
        """
        left = limit
        with suppress(OSError):
            while left > 0 and (piece := self._read(min(left, BLOCK_BYTES))):
                left -= len(piece)

    def _decoded(self) -> Iterator[bytes]:
        source = self._inflated() if self._gzip else self._wire()
        for piece in source:
            self.decoded_bytes += len(piece)
            if self.decoded_bytes > self._limit:
                raise self._too_large()
            self._digest.update(piece)
            yield piece

    def _wire(self) -> Iterator[bytes]:
        while piece := self._read_piece():
            self.wire_bytes += len(piece)
            if self.wire_bytes > max(WIRE_BYTES, self._limit):
                raise self._too_large()
            yield piece
        if self._expected is not None and self.wire_bytes != self._expected:
            raise _cut_off()

    def _read_piece(self) -> bytes:
        try:
            return self._read(BLOCK_BYTES)
        except OSError as error:
            raise _cut_off() from error

    def _inflated(self) -> Iterator[bytes]:
        """Inflate one or more gzip members, never more than a block at a time."""
        inflater = zlib.decompressobj(GZIP_WINDOW)
        fed = False
        for wire in self._wire():
            data = wire
            while data:
                if inflater.eof:
                    inflater, fed = zlib.decompressobj(GZIP_WINDOW), False
                try:
                    piece = inflater.decompress(data, BLOCK_BYTES)
                except zlib.error as error:
                    raise _bad_gzip(str(error)) from error
                fed = True
                if piece:
                    yield piece
                data = inflater.unused_data if inflater.eof else inflater.unconsumed_tail
        # A full output block may leave the last bytes inside the inflater, all input consumed.
        while fed and not inflater.eof and (piece := inflater.decompress(b"", BLOCK_BYTES)):
            yield piece
        if fed and not inflater.eof:
            raise _bad_gzip("it ends in the middle")

    def _too_large(self) -> LimitExceededError:
        return LimitExceededError(
            "results.too_large",
            f"The request holds more than {self._limit // (1024 * 1024)} MiB of rows.",
            "Split the rows over several requests; each is stored whole or not at all.",
        )


def _cut_off() -> InvalidInputError:
    return InvalidInputError(
        "results.cut_off",
        "The connection ended before the body did; nothing was stored.",
        "Send the request again with the same Idempotency-Key.",
    )


def _bad_gzip(reason: str) -> InvalidInputError:
    return InvalidInputError(
        "results.bad_gzip",
        f"The body is declared as gzip but cannot be decompressed: {reason}.",
        "Send the file whole, or leave Content-Encoding out for plain rows.",
    )
