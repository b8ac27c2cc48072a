"""Trial results by key: the store port and its directory implementation."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import zlib
from pathlib import Path
from typing import Protocol

import msgspec

from qualityhub.engine.trials.codec import result_from_json, to_json
from qualityhub.engine.trials.model import TrialResult


class TrialStore(Protocol):
    """Where results are kept. Implementations are safe for concurrent use."""

    def get(self, key: str) -> TrialResult | None:
        """Return the stored result, or None; a damaged entry counts as absent."""
        ...

    def put(self, result: TrialResult) -> None:
        """Keep a result; the first one for a key wins."""
        ...


class NullStore:
    """Keeps nothing."""

    def get(self, key: str) -> TrialResult | None:
        """Return None."""
        del key
        return None

    def put(self, result: TrialResult) -> None:
        """Forget the result."""


class DirectoryStore:
    """One compressed file per result below a folder, named by the key.

    A file is the hex sha256 of the compressed body, a newline, the body. It is written beside and
    renamed, so that a reader sees all of it or nothing.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def get(self, key: str) -> TrialResult | None:
        """Return the stored result, or None; a damaged entry is removed."""
        path = self._path(key)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        seal, _, body = content.partition(b"\n")
        result = _opened(seal, body)
        if result is None or result.key != key:
            path.unlink(missing_ok=True)
            return None
        return result

    def put(self, result: TrialResult) -> None:
        """Keep a result; the first one for a key wins."""
        path = self._path(result.key)
        if path.exists():
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        body = zlib.compress(json.dumps(to_json(result), ensure_ascii=True).encode())
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise

    def _path(self, key: str) -> Path:
        name = key.rpartition(":")[2]
        return self.root / name[:2] / name[2:4] / name


def _opened(seal: bytes, body: bytes) -> TrialResult | None:
    if hashlib.sha256(body).hexdigest().encode() != seal:
        return None
    try:
        return result_from_json(json.loads(zlib.decompress(body)))
    except (ValueError, zlib.error, msgspec.ValidationError):
        return None
