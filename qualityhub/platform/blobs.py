"""Packages in the blob store. A row is written only after its blob.

Servers and workers of a hub, on whatever host, see the same store; only this module and the one of
evidence know that it is a folder today.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import shutil
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from django.conf import settings

from qualityhub.engine.blobs import NAME, DirectoryBlobs
from qualityhub.engine.errors import MachineryError, NotFoundError

if TYPE_CHECKING:
    from pathlib import Path

    from qualityhub.engine.blobs import BlobStore


@dataclass(frozen=True, slots=True)
class Blob:
    """A stored file.

    Attributes:
        sha256: Hex digest of the content as given.
        size: Bytes of the content as given.
    """

    sha256: str
    size: int


class PackageStore:
    """Files of packages by their digest; a digest is not a permission: callers check who may read.

    Args:
        blobs: Where they are.
        older: Folder with files as 0.1.0 stored them at first, if there is one.
    """

    def __init__(self, blobs: BlobStore, older: Path | None = None) -> None:
        self.blobs = blobs
        self.older = older

    def put(self, content: bytes | IO[bytes], *, max_bytes: int) -> Blob:
        """Store content durably and return its name; the same content is stored once.

        Raises:
            LimitExceededError: More than ``max_bytes``; nothing is left behind.
        """
        if isinstance(content, bytes):
            return Blob(self.blobs.put(content, max_bytes=max_bytes), len(content))
        start = content.tell()
        sha256 = self.blobs.put(content, max_bytes=max_bytes)
        return Blob(sha256, content.tell() - start)

    def read(self, sha256: str) -> bytes:
        """Return the content, verified.

        Raises:
            NotFoundError: That is no name of a blob.
            MachineryError: It is gone or damaged.
        """
        target = io.BytesIO()
        self.copy_to(sha256, target)
        return target.getvalue()

    def copy_to(self, sha256: str, target: IO[bytes]) -> int:
        """Write the content to an open file, verified; return its bytes. Raises like ``read``."""
        if not NAME.fullmatch(sha256):
            raise NotFoundError("blob.not_found", "That is not the name of a blob.")
        source = self.blobs.open(sha256) or self._older(sha256)
        if source is None:
            raise MachineryError(
                "blob.lost",
                f"The blob {sha256} is not in the store, or not as it was stored.",
                "Give this process the hub's blob store (QH_BLOBS), or restore it from a backup.",
            )
        start = target.tell()
        with source:
            shutil.copyfileobj(source, target)
        return target.tell() - start

    def exists(self, sha256: str) -> bool:
        """Tell whether the blob is there."""
        return self.blobs.has(sha256) or any(path.is_file() for path in self._older_paths(sha256))

    def _older_paths(self, sha256: str) -> list[Path]:
        if self.older is None or not NAME.fullmatch(sha256):
            return []
        folder = self.older / sha256[:2] / sha256[2:4]
        return [folder / sha256, folder / f"{sha256}.gz"]

    def _older(self, sha256: str) -> IO[bytes] | None:
        for path in self._older_paths(sha256):
            with suppress(OSError, EOFError):
                content = path.read_bytes()
                if path.suffix:
                    content = gzip.decompress(content)
                if hashlib.sha256(content).hexdigest() == sha256:
                    return io.BytesIO(content)
        return None


def blobs_root() -> Path:
    """Return the folder that holds this hub's blobs: packages, and below it evidence."""
    root: Path = settings.QH_BLOBS or settings.QH_HOME / "blobs"
    return root


def blob_store() -> PackageStore:
    """Return this hub's store of packages."""
    return PackageStore(DirectoryBlobs(blobs_root()), blobs_root())
