"""Content-addressed files: the store port and its directory form.

A blob is named by the hex sha256 of its content and kept compressed. A name is not a permission:
callers check who may read. A row that names a blob is written only after the blob; what no row
names any more is removed by :mod:`~qualityhub.engine.sweeping`.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

import zstandard

from qualityhub.engine.errors import LimitExceededError

CHUNK = 256 * 1024
MOST_READ = 64 * 1024 * 1024
LEVEL = 3
NAME = re.compile(r"[0-9a-f]{64}")
SPOOLED = 8 * 1024 * 1024
PLACINGS = 20
CLOCK_S = 30.0
"""Seconds after which the folder's clock is looked at again."""
NEW, OLD, BAD = ".new-", ".old-", ".bad-"


@dataclass(frozen=True, slots=True)
class Stored:
    """One entry of a listing.

    Attributes:
        digest: Its name.
        size: Bytes it takes in the store.
        age_s: Seconds since it was last put, by the store's own clock.
    """

    digest: str
    size: int
    age_s: float


class BlobStore(Protocol):
    """Where blobs live. Safe for many threads, processes and hosts at once."""

    def put(self, content: bytes | IO[bytes], *, max_bytes: int = 0) -> str:
        """Store content and return its name; the same content is stored once, and is young again.

        Raises:
            LimitExceededError: More than ``max_bytes`` (0: no limit); nothing is left behind.
        """
        ...

    def get(self, digest: str, *, max_bytes: int = MOST_READ) -> bytes | None:
        """Return the content, or None where it is missing, unreadable, damaged or larger."""
        ...

    def open(self, digest: str) -> IO[bytes] | None:
        """Return a file with the whole content, verified; None as for :meth:`get`."""
        ...

    def has(self, digest: str) -> bool:
        """Tell whether something is stored under the name; it is not read."""
        ...

    def delete(self, digest: str, *, older_than_s: float = 0.0) -> bool:
        """Remove a blob unless it was put within so many seconds; tell whether it was removed."""
        ...

    def iterate(self) -> Iterator[Stored]:
        """List what is stored, in the order of the names."""
        ...

    def tidy(self, older_than_s: float) -> None:
        """Clear away what writers and sweepers left behind that were killed so long ago."""
        ...


class DirectoryBlobs:
    """Blobs in a folder: ``ab/cd/<sha256>.zst``.

    A blob is written beside and renamed, so that a reader sees all of it or nothing, and verified
    whenever it is read. There are no locks, and times are compared by the folder's own clock:
    several hosts may share the folder, also over NFS.

    Args:
        root: The folder; made when first needed, for this user alone. In a folder that an operator
            made writable for its group, the group reads and writes too.
        durable: Whether a blob survives a power failure once :meth:`put` has returned; a cache
            that can be made again does without.
    """

    def __init__(self, root: Path, *, durable: bool = True) -> None:
        self.root = root
        self.durable = durable
        self._clock = (0.0, 0.0)

    def put(self, content: bytes | IO[bytes], *, max_bytes: int = 0) -> str:
        """Store content: temporary file, fsync, rename, fsync of the folder."""
        if isinstance(content, bytes):
            if max_bytes and len(content) > max_bytes:
                raise _too_large(max_bytes)
            digest = hashlib.sha256(content).hexdigest()
            packed = zstandard.ZstdCompressor(level=LEVEL).compress(content)
            if not self._renewed(digest, packed):
                self._write(lambda file: _copied(file, packed, digest))
            return digest
        return self._write(lambda file: _pack(content, file, max_bytes))

    def get(self, digest: str, *, max_bytes: int = MOST_READ) -> bytes | None:
        """Return the content; a damaged entry is removed."""
        content = io.BytesIO()
        return content.getvalue() if self._read(digest, content, max_bytes) else None

    def open(self, digest: str) -> IO[bytes] | None:
        """Return a file with the content; a damaged entry is removed."""
        content = tempfile.SpooledTemporaryFile(max_size=SPOOLED)  # noqa: SIM115 - the caller's.
        if not self._read(digest, content, 0):
            content.close()
            return None
        content.seek(0)
        return content

    def has(self, digest: str) -> bool:
        """Tell whether there is a file of that name."""
        path = self._path(digest)
        return path is not None and path.is_file()

    def delete(self, digest: str, *, older_than_s: float = 0.0) -> bool:
        """Remove a blob.

        It is taken aside before its age is looked at: whoever puts it meanwhile writes it anew.
        """
        path = self._path(digest)
        if path is None:
            return False
        aside = self.root / f"{OLD}{digest}-{os.getpid()}"
        try:
            path.rename(aside)
            if self._now() - aside.stat().st_mtime < older_than_s:
                aside.rename(path)
                return False
            aside.unlink()
        except OSError:
            return False
        return True

    def iterate(self) -> Iterator[Stored]:
        """List what is stored."""
        now = self._now()
        for first in _folders(self.root):
            for second in _folders(first):
                for name in sorted(_names(second)):
                    digest, _, kind = name.partition(".")
                    if kind != "zst" or self._path(digest) != second / name:
                        continue
                    with suppress(OSError):
                        entry = (second / name).lstat()
                        if stat.S_ISREG(entry.st_mode):
                            yield Stored(digest, entry.st_size, now - entry.st_mtime)

    def tidy(self, older_than_s: float) -> None:
        """Remove temporary files; what was taken aside and never judged goes back."""
        now = self._now()
        for name in _names(self.root):
            path = self.root / name
            with suppress(OSError):
                if now - path.lstat().st_ctime < older_than_s:
                    continue
                target = self._path(name.removeprefix(OLD).partition("-")[0])
                if name.startswith(OLD) and target is not None:
                    path.rename(target)
                elif name.startswith((NEW, BAD)):
                    shutil.rmtree(path) if path.is_dir() else path.unlink()

    def _path(self, digest: str) -> Path | None:
        if not NAME.fullmatch(digest):
            return None
        return self.root / digest[:2] / digest[2:4] / f"{digest}.zst"

    def _renewed(self, digest: str, packed: bytes) -> bool:
        """Make a blob young again where it is there and sound."""
        path = self._path(digest)
        if path is None:
            return False
        try:
            with _opened(path) as file:
                if file.read(len(packed) + 1) != packed:
                    return False
            os.utime(path)
            # Whoever wrote it may not have come so far yet.
            self._settle(path.parent)
        except OSError:
            # Missing, not readable, or taken aside by a sweep just now.
            return False
        return True

    def _read(self, digest: str, target: IO[bytes], max_bytes: int) -> bool:
        path = self._path(digest)
        if path is None:
            return False
        state, size = hashlib.sha256(), 0
        try:
            with _opened(path) as file:
                identity = os.fstat(file.fileno())
                try:
                    with zstandard.ZstdDecompressor().stream_reader(file) as reader:
                        while chunk := reader.read(CHUNK):
                            size += len(chunk)
                            if max_bytes and size > max_bytes:
                                return False
                            state.update(chunk)
                            target.write(chunk)
                except zstandard.ZstdError:
                    state = hashlib.sha256()
                    size = -1
            if size >= 0 and state.hexdigest() == digest:
                return True
            # Only what was read is removed, not what somebody has put in its place.
            if os.path.samestat(identity, path.lstat()):
                path.unlink()
        except OSError:
            return False
        return False

    def _write(self, fill: Callable[[IO[bytes]], str]) -> str:
        shared = self._made(self.root)
        handle, name = tempfile.mkstemp(dir=self.root, prefix=NEW)
        temporary = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                digest = fill(file)
                if shared:
                    os.fchmod(file.fileno(), 0o660)
                file.flush()
                if self.durable:
                    os.fsync(file.fileno())
            path = self.root / digest[:2] / digest[2:4] / f"{digest}.zst"
            for last in (False,) * PLACINGS + (True,):
                try:
                    for folder in (path.parent.parent, path.parent):
                        self._made(folder, shared=shared)
                    temporary.replace(path)
                    break
                except FileNotFoundError:
                    # Pruning takes folders away that it finds empty.
                    if last:
                        raise
                except (IsADirectoryError, NotADirectoryError, FileExistsError):
                    if last:
                        raise
                    path.rename(self.root / f"{BAD}{temporary.name}")
            self._settle(path.parent)
            return digest
        finally:
            temporary.unlink(missing_ok=True)

    def _made(self, folder: Path, *, shared: bool = False) -> bool:
        """Make a folder that is missing; tell whether its group shares it."""
        try:
            mode = folder.stat().st_mode
        except FileNotFoundError:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if shared:
                folder.chmod(0o2770)
            self._settle(folder.parent)
            return shared
        if not stat.S_ISDIR(mode):
            folder.rename(self.root / f"{BAD}{folder.name}-{os.getpid()}")
            return self._made(folder, shared=shared)
        return bool(mode & stat.S_IWGRP)

    def _settle(self, folder: Path) -> None:
        if not self.durable:
            return
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            # Some network file systems write folders through and refuse this.
            if error.errno not in {errno.EINVAL, errno.ENOTSUP}:
                raise
        finally:
            os.close(descriptor)

    def _now(self) -> float:
        """Return the time by the clock that stamps the files, which another host may own."""
        looked, stamp = self._clock
        passed = time.monotonic() - looked
        if not stamp or passed > CLOCK_S:
            self._made(self.root)
            with tempfile.NamedTemporaryFile(dir=self.root, prefix=NEW) as probe:
                os.utime(probe.name)
                passed, stamp = 0.0, os.fstat(probe.fileno()).st_mtime
                self._clock = time.monotonic(), stamp
        return stamp + passed


def _opened(path: Path) -> IO[bytes]:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileNotFoundError(errno.ENOENT, "Not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def _copied(file: IO[bytes], packed: bytes, digest: str) -> str:
    file.write(packed)
    return digest


def _pack(source: IO[bytes], file: IO[bytes], max_bytes: int) -> str:
    state, size = hashlib.sha256(), 0
    with zstandard.ZstdCompressor(level=LEVEL).stream_writer(file, closefd=False) as packer:
        while chunk := source.read(CHUNK):
            size += len(chunk)
            if max_bytes and size > max_bytes:
                raise _too_large(max_bytes)
            state.update(chunk)
            packer.write(chunk)
    return state.hexdigest()


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - names alone, thousands of them.
    except OSError:
        return []


def _folders(folder: Path) -> list[Path]:
    return [folder / name for name in sorted(_names(folder)) if re.fullmatch("[0-9a-f]{2}", name)]


def _too_large(max_bytes: int) -> LimitExceededError:
    return LimitExceededError(
        "blob.too_large",
        f"The content is larger than {max_bytes} bytes.",
        "Leave out what is not needed, or ask the operator for a higher limit.",
    )
