"""Frames between our process and a keeper: a length, a JSON header, then raw bytes."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

HEADER = struct.Struct("!Q")
LARGEST_HEADER = 64 * 1024 * 1024
PIECE = 1024 * 1024


def send(channel: socket.socket, header: dict[str, Any], *blobs: bytes) -> None:
    """Send one header and the bytes that belong to it.

    Raises:
        OSError: The other side is gone.
    """
    text = json.dumps(header).encode("ascii")
    channel.sendall(HEADER.pack(len(text)) + text)
    for blob in blobs:
        channel.sendall(blob)


def receive(channel: socket.socket) -> dict[str, Any]:
    """Return the next header.

    Raises:
        EOFError: The other side closed before a whole header came.
        ValueError: The header is no JSON object or is unreasonably large.
    """
    (size,) = HEADER.unpack(read_exactly(channel, HEADER.size))
    if size > LARGEST_HEADER:
        raise ValueError(f"a header of {size} bytes")
    header = json.loads(read_exactly(channel, size))
    if not isinstance(header, dict):
        raise TypeError("a header that is no object")
    return header


def read_exactly(channel: socket.socket, size: int) -> bytes:
    """Return exactly ``size`` bytes.

    Raises:
        EOFError: The other side closed before.
    """
    parts: list[bytes] = []
    while size:
        part = channel.recv(min(size, PIECE))
        if not part:
            raise EOFError("closed in the middle of a frame")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
