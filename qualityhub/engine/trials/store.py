"""Trial results by key: the store port and its directory implementation."""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
import time
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import msgspec

from qualityhub.engine.blobs import NAME, PLACINGS, BlobStore, DirectoryBlobs
from qualityhub.engine.digest import PREFIX
from qualityhub.engine.trials.codec import result_from_json, to_json
from qualityhub.engine.trials.evidence import (
    EVIDENCE_BYTES,
    Part,
    pack_outputs,
    unpack_outputs,
)
from qualityhub.engine.trials.model import TrialResult

USED_S = 3600
"""Seconds for which the time of an entry may lag behind its last use."""
BEGINNING = re.compile(r"[0-9a-f]{4,64}")


class TrialStore(Protocol):
    """Where results are kept. Implementations are safe for concurrent use."""

    def get(self, key: str) -> TrialResult | None:
        """Return the stored result, or None; a damaged entry counts as absent."""
        ...

    def put(self, result: TrialResult) -> None:
        """Keep a result; the first one for a key wins."""
        ...

    def keep(self, outputs: Mapping[str, bytes]) -> str:
        """Keep a trial's outputs as evidence and return its name; empty where nothing is kept.

        Called before the result that names it is put.
        """
        ...


class NullStore:
    """Keeps nothing."""

    def get(self, key: str) -> TrialResult | None:
        """Return None."""
        del key
        return None

    def put(self, result: TrialResult) -> None:
        """Forget the result."""

    def keep(self, outputs: Mapping[str, bytes]) -> str:
        """Forget the outputs."""
        del outputs
        return ""


class DirectoryStore:
    """One compressed file per result below a folder, named by the key; evidence in blobs.

    A file is the hex sha256 of the compressed body, a newline, the body. It is written beside and
    renamed, so that a reader sees all of it or nothing; what cannot be read counts as absent. There
    are no locks: processes and hosts may share the folder.

    Args:
        root: The folder.
        blobs: Where evidence goes; without one, none is kept.
        evidence_bytes: Kept of the outputs of one trial.
    """

    def __init__(
        self, root: Path, blobs: BlobStore | None = None, evidence_bytes: int = EVIDENCE_BYTES
    ) -> None:
        self.root = root
        self.blobs = blobs
        self.evidence_bytes = evidence_bytes

    def get(self, key: str) -> TrialResult | None:
        """Return the stored result, or None; a damaged entry is removed."""
        path = self._path(key)
        if path is None:
            return None
        try:
            content = path.read_bytes()
        except OSError:
            return None
        seal, _, body = content.partition(b"\n")
        result = _opened(seal, body)
        if result is None or result.key != key:
            with suppress(OSError):
                path.unlink()
            return None
        with suppress(OSError):
            # Pruning takes what was unused for longest.
            if time.time() - path.stat().st_mtime > USED_S:
                os.utime(path)
        return result

    def put(self, result: TrialResult) -> None:
        """Keep a result; the first one for a key wins, one that cannot be read does not count."""
        path = self._path(result.key)
        if path is None or (path.exists() and self.get(result.key) is not None):
            return
        body = zlib.compress(json.dumps(to_json(result), ensure_ascii=True).encode())
        handle, name = _beside(path)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
            try:
                Path(name).replace(path)
            except IsADirectoryError:
                path.rename(f"{name}.bad")
                Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise

    def keep(self, outputs: Mapping[str, bytes]) -> str:
        """Keep outputs as one blob."""
        if self.blobs is None:
            return ""
        return self.blobs.put(pack_outputs(outputs, self.evidence_bytes))

    def evidence(self, result: TrialResult) -> tuple[Part, ...] | None:
        """Return a result's evidence, or None where its previews are all there is, or all left."""
        if self.blobs is None or not result.evidence:
            return None
        return unpack_outputs(self.blobs.get(result.evidence))

    def find(self, beginning: str) -> list[str]:
        """Return the keys that begin so, at least four hexadecimal characters after the prefix."""
        folder = self.root / beginning[:2] / beginning[2:4]
        if not BEGINNING.fullmatch(beginning):
            return []
        with suppress(OSError):
            names = sorted(path.name for path in folder.iterdir() if NAME.fullmatch(path.name))
            return [PREFIX + name for name in names if name.startswith(beginning)]
        return []

    def _path(self, key: str) -> Path | None:
        name = key.rpartition(":")[2]
        return self.root / name[:2] / name[2:4] / name if NAME.fullmatch(name) else None


def _beside(path: Path) -> tuple[int, str]:
    """Open a new file beside a path; pruning may take the folder away as long as it is empty."""
    for _ in range(PLACINGS):
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            return tempfile.mkstemp(dir=path.parent, prefix=".new-")
    return tempfile.mkstemp(dir=path.parent, prefix=".new-")


def directory_store(home: Path) -> DirectoryStore:
    """Return the store of a data folder.

    Both parts are caches, which can be made again: a power failure may cost entries, and what it
    leaves damaged is found and made again.
    """
    return DirectoryStore(home / "trials", DirectoryBlobs(home / "evidence", durable=False))


def _opened(seal: bytes, body: bytes) -> TrialResult | None:
    if hashlib.sha256(body).hexdigest().encode() != seal:
        return None
    try:
        return result_from_json(json.loads(zlib.decompress(body)))
    except (ValueError, zlib.error, msgspec.ValidationError):
        return None
