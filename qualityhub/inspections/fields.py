"""A column for JSON that foreign code had a hand in."""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Any

from django.db import models

if TYPE_CHECKING:
    Binary = models.BinaryField[Any, Any]
else:
    Binary = models.BinaryField


class PackedJSONField(Binary):
    """Keeps any JSON value exactly, compressed.

    PostgreSQL's own JSON refuses NUL and lone surrogates, which outputs of foreign programs hold;
    rounding them off would change what a verdict was made from.
    """

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:  # noqa: ARG002
        """Return the value as it was given."""
        return None if value is None else unpack(bytes(value))

    def get_db_prep_value(self, value: Any, connection: Any, prepared: bool = False) -> Any:
        """Return the bytes to store."""
        packed = None if value is None else pack(value)
        return super().get_db_prep_value(packed, connection, prepared)


def pack(value: Any) -> bytes:
    """Return a JSON value as compressed bytes."""
    return zlib.compress(json.dumps(value, ensure_ascii=True, separators=(",", ":")).encode(), 3)


def unpack(data: bytes) -> Any:
    """Return the JSON value of compressed bytes.

    Raises:
        ValueError: They are none.
        zlib.error: They are damaged.
    """
    return json.loads(zlib.decompress(data))
