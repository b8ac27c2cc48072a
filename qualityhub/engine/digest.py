"""The frozen digest definition. Changing any of it is a new prefix, never an edit.

* A digest is ``qh1:`` plus the hex sha256 of ``kind``, a NUL byte, and RFC 8785 canonical JSON.
* A *tree* is its entries sorted by path: ``[path, kind, mode, size, sha256, target]``; path is NFC
  POSIX relative, kind ``file`` or ``link``, mode the execute bits alone. Times and owners do not
  count; line endings do, because content is hashed byte by byte.
* Left out of every tree: ``.git``, ``__pycache__``, ``.qualityhub`` and the ``qualityhub.toml`` at
  the root. Of that file only the ``[environment]`` table counts, as part of the environment layer:
  ``[rules]`` and ``[[waivers]]`` change no digest.
* A JSONL *row* is the parsed object. Duplicate keys and NaN are refused by the reader; integers
  of a magnitude of 2**53 and more, which JSON numbers cannot tell apart, are decimal text.
* A *task* is its layers without ``documentation``; an *environment* is its shared files and its
  tasks by id.

``tests/data/digest_vectors.json`` holds the vectors.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import rfc8785

if TYPE_CHECKING:
    from qualityhub.engine.environments.model import FileEntry

PREFIX = "qh1:"
EXACT_INTEGER = 2**53 - 1
_encode = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
).encode
LEFT_OUT = frozenset({".git", "__pycache__", ".qualityhub"})


def canonical_json(value: object) -> bytes:
    """Return RFC 8785 bytes; integers beyond 2**53 - 1 become decimal text first.

    Raises:
        ValueError: For NaN, infinities, lone surrogates, types JSON does not have, and nesting
            deeper than the interpreter's stack.
    """
    try:
        if _is_plain(value):
            return _encode(value).encode()
        return rfc8785.dumps(_exact(value))
    except (rfc8785.CanonicalizationError, UnicodeEncodeError, RecursionError) as error:
        raise ValueError(str(error)) from error


def digest_json(kind: str, value: object) -> str:
    """Return the digest of a JSON value under a kind, e.g. ``digest_json("row", {...})``."""
    return PREFIX + hashlib.sha256(kind.encode() + b"\0" + canonical_json(value)).hexdigest()


def digest_tree(entries: Iterable[FileEntry]) -> str:
    """Return the digest of a tree; entries may come in any order."""
    rows = sorted(
        [
            unicodedata.normalize("NFC", entry.path),
            entry.kind,
            entry.mode & 0o111,
            entry.size,
            entry.sha256,
            entry.target,
        ]
        for entry in entries
    )
    return digest_json("tree", rows)


def digest_row(row: Mapping[str, Any]) -> str:
    """Return the digest of one parsed JSONL row."""
    return digest_json("row", row)


def digest_task(layers: Mapping[str, str]) -> str:
    """Return the digest of a task from its layer digests; documentation does not count."""
    return digest_json(
        "task", {name: value for name, value in layers.items() if name != "documentation"}
    )


def digest_environment(shared: str, tasks: Mapping[str, str]) -> str:
    """Return the digest of an environment from its shared files and its tasks' digests by id."""
    return digest_json("environment", {"shared": shared, "tasks": dict(tasks)})


def _is_plain(value: object) -> bool:
    """Whether the standard library's encoder gives the same bytes, in a tenth of the time.

    It does where there is no number to round and no key that sorts otherwise as UTF-16.
    """
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return True
    if isinstance(value, int):
        return kind is int and -EXACT_INTEGER <= value <= EXACT_INTEGER
    if isinstance(value, dict):
        return kind is dict and all(
            type(key) is str and key.isascii() and _is_plain(item) for key, item in value.items()
        )
    return isinstance(value, list | tuple) and all(map(_is_plain, value))


def _exact(value: object) -> Any:
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) <= EXACT_INTEGER else str(value)
    if isinstance(value, Mapping):
        return {str(key): _exact(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_exact(item) for item in value]
    return value
