"""Content-addressed files: archives and evidence. A row is written only after its blob."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import tempfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

from django.conf import settings

from qualityhub.engine.errors import LimitExceededError, MachineryError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator

CHUNK = 256 * 1024
SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Blob:
    """A stored file.

    Attributes:
        sha256: Hex digest of the content as given.
        size: Bytes of the content as given.
    """

    sha256: str
    size: int


class BlobStore(Protocol):
    """Where blobs live. A digest is not a permission: callers check who may read."""

    def put(self, content: bytes | IO[bytes], *, max_bytes: int, compress: bool = False) -> Blob:
        """Store content and return its name; the same content is stored once."""

    def read(self, sha256: str) -> bytes:
        """Return the content, verified against its name."""

    def copy_to(self, sha256: str, target: IO[bytes]) -> int:
        """Write the content to an open file, verified, and return its bytes."""

    def exists(self, sha256: str) -> bool:
        """Tell whether the blob is there."""


class DirectoryBlobStore:
    """Blobs in a folder: ``ab/cd/<sha256>`` or, compressed, ``ab/cd/<sha256>.gz``.

    Args:
        root: The folder; made when first needed, readable by this user alone.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def put(self, content: bytes | IO[bytes], *, max_bytes: int, compress: bool = False) -> Blob:
        """Store content durably: temporary file, fsync, rename, fsync of the folder.

        Raises:
            LimitExceededError: More than ``max_bytes``; nothing is left behind.
        """
        source = io.BytesIO(content) if isinstance(content, bytes) else content
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=self.root, prefix=".new-")
        temporary = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                blob = _write(source, file, max_bytes, compress=compress)
                file.flush()
                os.fsync(file.fileno())
            if not self.exists(blob.sha256):
                self._settle(temporary, self._path(blob.sha256, compressed=compress))
            return blob
        finally:
            temporary.unlink(missing_ok=True)

    def read(self, sha256: str) -> bytes:
        """Return the content, verified.

        Raises:
            NotFoundError: No such blob.
            MachineryError: What is stored is not what was stored.
        """
        target = io.BytesIO()
        self.copy_to(sha256, target)
        return target.getvalue()

    def copy_to(self, sha256: str, target: IO[bytes]) -> int:
        """Write the content to an open file, verified; raises like ``read``."""
        digest, size = hashlib.sha256(), 0
        try:
            for chunk in self._chunks(sha256):
                digest.update(chunk)
                size += len(chunk)
                target.write(chunk)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise _damaged(sha256) from error
        if digest.hexdigest() != sha256:
            raise _damaged(sha256)
        return size

    def exists(self, sha256: str) -> bool:
        """Tell whether the blob is there."""
        return any(self._path(sha256, compressed=state).is_file() for state in (False, True))

    def _chunks(self, sha256: str) -> Iterator[bytes]:
        plain, packed = (self._path(sha256, compressed=state) for state in (False, True))
        if plain.is_file():
            file: IO[bytes] = plain.open("rb")
        elif packed.is_file():
            file = gzip.open(packed, "rb")  # type: ignore[assignment]  # noqa: SIM115 - closed below.
        else:
            raise NotFoundError("blob.not_found", f"No blob is called {sha256}.")
        with file:
            while chunk := file.read(CHUNK):
                yield chunk

    def _path(self, sha256: str, *, compressed: bool) -> Path:
        if not SHA256.fullmatch(sha256):
            raise NotFoundError("blob.not_found", "That is not the name of a blob.")
        suffix = ".gz" if compressed else ""
        return self.root / sha256[:2] / sha256[2:4] / f"{sha256}{suffix}"

    def _settle(self, temporary: Path, path: Path) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary.replace(path)
        for folder in (path.parent, path.parent.parent, self.root):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def blob_store() -> BlobStore:
    """Return this installation's store."""
    return DirectoryBlobStore(settings.QH_BLOBS or settings.QH_HOME / "blobs")


def _write(source: IO[bytes], file: IO[bytes], max_bytes: int, *, compress: bool) -> Blob:
    digest, size = hashlib.sha256(), 0
    # A fixed time keeps equal content equal on disk.
    packer = gzip.GzipFile(fileobj=file, mode="wb", mtime=0) if compress else None
    sink: IO[bytes] = packer if packer is not None else file  # type: ignore[assignment]
    while chunk := source.read(CHUNK):
        size += len(chunk)
        if size > max_bytes:
            raise LimitExceededError(
                "blob.too_large",
                f"The content is larger than {max_bytes} bytes.",
                "Leave out what is not needed, or ask the operator for a higher limit.",
            )
        digest.update(chunk)
        sink.write(chunk)
    if packer is not None:
        packer.close()
    return Blob(digest.hexdigest(), size)


def _damaged(sha256: str) -> MachineryError:
    return MachineryError(
        "blob.damaged",
        f"The stored blob {sha256} does not have its content any more.",
        "Restore the blobs folder from a backup.",
    )
