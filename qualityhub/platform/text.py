"""Text that came from outside, made fit to be stored and shown."""

from __future__ import annotations

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def storable(text: str) -> str:
    """Return text that PostgreSQL can hold: no NUL, no lone surrogates."""
    return text.replace("\0", REPLACEMENT).encode("utf-8", "replace").decode("utf-8")


def storable_json(value: object) -> object:
    """Return JSON whose texts PostgreSQL can hold, also in keys."""
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, dict):
        return {storable(str(key)): storable_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [storable_json(item) for item in value]
    return value
