from __future__ import annotations

import gzip
import io
import os

import pytest

from qualityhub.engine.errors import InvalidInputError, LimitExceededError
from qualityhub.gates.stream import BLOCK_BYTES, RowStream

LINES = b"".join(b"%06d %s\n" % (number, b"x" * (number % 300)) for number in range(20_000))


def in_pieces(data, size):
    source = io.BytesIO(data)
    return lambda wanted: source.read(min(size, wanted))


@pytest.mark.parametrize("size", [97, 4096, 10**9])
@pytest.mark.parametrize("packed", [False, True])
def test_blocks_are_whole_lines_with_their_numbers(size, packed):
    body = gzip.compress(LINES) if packed else LINES
    stream = RowStream(in_pieces(body, size), "gzip" if packed else "", expected=len(body))
    line = 1
    seen = b""
    for block, first in stream.blocks():
        assert first == line
        assert block.startswith(b"%06d " % (first - 1))
        assert len(block) <= 2 * BLOCK_BYTES
        line += block.count(b"\n")
        seen += block
    assert seen == LINES


def test_the_digest_is_of_what_was_meant_not_of_how_it_was_sent():
    plain = RowStream(io.BytesIO(LINES).read)
    packed = RowStream(io.BytesIO(gzip.compress(LINES, 1)).read, "gzip")
    for _ in plain.blocks():
        pass
    assert plain.digest == packed.digest_of_all()


def test_a_full_output_block_loses_nothing_at_the_end():
    for size in (BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, 2 * BLOCK_BYTES):
        body = b"\n" * size
        stream = RowStream(io.BytesIO(gzip.compress(body)).read, "gzip")
        assert b"".join(block for block, _ in stream.blocks()) == body


def test_noise_that_does_not_compress_survives():
    body = os.urandom(300_000).replace(b"\n", b"") + b"\n"
    stream = RowStream(in_pieces(gzip.compress(body), 1000), "gzip")
    assert b"".join(block for block, _ in stream.blocks()) == body


@pytest.mark.parametrize("packed", [False, True])
def test_a_sender_that_dies_is_noticed_even_at_the_end_of_a_line(packed):
    body = gzip.compress(LINES) if packed else LINES
    stream = RowStream(io.BytesIO(body).read, "gzip" if packed else "", expected=len(body) + 100)
    with pytest.raises(InvalidInputError) as caught:
        list(stream.blocks())
    assert caught.value.code == "results.cut_off"


def test_a_broken_connection_is_a_clear_error():
    def read(_):
        raise ConnectionResetError

    with pytest.raises(InvalidInputError) as caught:
        list(RowStream(read).blocks())
    assert caught.value.code == "results.cut_off"


def test_endless_empty_members_end(monkeypatch):
    monkeypatch.setattr("qualityhub.gates.stream.WIRE_BYTES", 500_000)
    member = gzip.compress(b"")
    endless = lambda wanted: member * (wanted // len(member))  # noqa: E731
    with pytest.raises(LimitExceededError):
        list(RowStream(endless, "gzip", limit=1000).blocks())


def test_draining_ends_with_an_endless_sender():
    calls = []

    def read(wanted):
        calls.append(wanted)
        return b"x" * wanted

    RowStream(read).drain(limit=10_000_000)
    assert sum(calls) == 10_000_000
