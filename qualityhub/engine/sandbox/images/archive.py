"""Open an image archive on disk: a folder or a tar, perhaps compressed."""

from __future__ import annotations

import io
import os
import re
import stat
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Protocol, cast

import msgspec
import zstandard

from qualityhub.engine.errors import InvalidInputError
from qualityhub.engine.sandbox.tarstream import HEADER_BYTES, PIECE, Source, parts_of, shown
from qualityhub.engine.sandbox.treewriter import FOLDER

LARGEST_DOCUMENT = 8 * 1024 * 1024
MOST_MEMBERS = 100_000
_GZIP = b"\x1f\x8b"
_ZSTD = re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18")
# Small beside what comes out: what is not used yet is copied at each step.
_PACKED = 64 * 1024
_ZSTD_WINDOW = 128 * 1024 * 1024
_MOST_LINKS = 8


def bad(message: str, hint: str = "", code: str = "image.archive") -> InvalidInputError:
    """Return the error for an archive that cannot be used."""
    return InvalidInputError(
        code,
        message,
        hint or "Write it again with `docker save`, `podman save` or `skopeo copy`.",
    )


class Archive(Protocol):
    """The files of an image archive, by relative name."""

    def has(self, name: str) -> bool:
        """Say whether there is such a file."""
        ...

    def open(self, name: str) -> IO[bytes]:
        """Open a file.

        Raises:
            InvalidInputError: There is none.
        """
        ...


def read_document(archive: Archive, name: str) -> bytes:
    """Return a small file.

    Raises:
        InvalidInputError: There is none, or it is too large for a document.
    """
    with archive.open(name) as stream:
        data = stream.read(LARGEST_DOCUMENT + 1)
    if len(data) > LARGEST_DOCUMENT:
        raise bad(f"{shown(name)} of the image archive is too large for a document.")
    return data


def parse(data: bytes, name: str) -> Any:
    """Return a JSON document.

    Raises:
        InvalidInputError: It is none.
    """
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise bad(f"{shown(name)} of the image archive is not JSON: {error}.") from error


@contextmanager
def open_archive(path: Path, spool: Path, most_bytes: int) -> Iterator[Archive]:
    """Open a folder or a tar.

    Args:
        path: Of the archive.
        spool: File that a compressed tar is unpacked to; removed at the end.
        most_bytes: Of it.

    Raises:
        InvalidInputError: It is neither, broken or too large.
    """
    try:
        kind = path.stat().st_mode
    except OSError as error:
        raise bad(f"{shown(path.name)} cannot be read: {error.strerror}.") from error
    if stat.S_ISDIR(kind):
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield _Folder(folder)
        finally:
            os.close(folder)
        return
    if not stat.S_ISREG(kind):
        raise bad(f"{shown(path.name)} is neither a file nor a folder.")
    try:
        with path.open("rb") as raw:
            head = raw.peek(8) if isinstance(raw, io.BufferedReader) else b""
            if head[:2] != _GZIP and not _ZSTD.match(head):
                yield _Tar(raw, path.name)
                return
            with spool.open("w+b") as plain:
                _spool(raw, plain, path.name, most_bytes)
                plain.seek(0)
                yield _Tar(plain, path.name)
    except PermissionError as error:
        raise bad(f"{shown(path.name)} cannot be read: {error.strerror}.") from error
    finally:
        spool.unlink(missing_ok=True)


class Decompressed:
    """A layer's tar, decompressed by what its first bytes say; a bomb ends at the cap.

    Raises (while it is read):
        ValueError: Broken, truncated, or over the cap.
    """

    def __init__(self, source: Source, most_bytes: int) -> None:
        self._head = source.read(4)
        self._source = _Joined(self._head, source)
        self._left = most_bytes
        self._read = self._opened()

    def read(self, size: int) -> bytes:
        """Return at most ``size`` bytes."""
        try:
            data: bytes = self._read(size)
        except (zlib.error, zstandard.ZstdError, EOFError) as error:
            raise ValueError(f"it is not compressed as it says: {error}") from error
        self._left -= len(data)
        if self._left < 0:
            raise ValueError("it is larger than accepted once decompressed")
        return data

    def _opened(self) -> Any:
        if self._head[:2] == _GZIP:
            return _Gunzip(self._source).read
        if _ZSTD.match(self._head):
            context = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
            return context.stream_reader(
                cast("IO[bytes]", self._source), read_across_frames=True, closefd=False
            ).read
        return self._source.read


class _Gunzip:
    """Gzip with any number of members; unlike the standard library's it needs no seeking."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._member = zlib.decompressobj(wbits=31)
        self._input = b""

    def read(self, size: int) -> bytes:
        while True:
            if self._member.eof:
                # Another member may follow; zeros are padding.
                self._input = self._member.unused_data.lstrip(b"\0")
                while not self._input:
                    more = self._source.read(_PACKED)
                    if not more:
                        return b""
                    self._input = more.lstrip(b"\0")
                self._member = zlib.decompressobj(wbits=31)
            elif not self._input:
                self._input = self._source.read(_PACKED)
                if not self._input:
                    raise EOFError("it ends early")
            data = self._member.decompress(self._input, max(1, size))
            self._input = self._member.unconsumed_tail
            if data:
                return data


class _Joined:
    """What was read already, then the rest."""

    def __init__(self, head: bytes, rest: Source) -> None:
        self._head = head
        self._rest = rest

    def read(self, size: int = PIECE) -> bytes:
        if self._head:
            data, self._head = self._head[:size], self._head[size:]
            return data
        return self._rest.read(size)


class _Folder:
    """A folder; nothing in it is reached through a link."""

    def __init__(self, root: int) -> None:
        self._root = root

    def has(self, name: str) -> bool:
        try:
            self.open(name).close()
        except InvalidInputError:
            return False
        return True

    def open(self, name: str) -> IO[bytes]:
        try:
            parts = parts_of(name)
            here = os.dup(self._root)
            try:
                for part in parts[:-1]:
                    below = os.open(part, FOLDER, dir_fd=here)
                    os.close(here)
                    here = below
                flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
                file = os.open(parts[-1], flags, dir_fd=here)
            finally:
                os.close(here)
        except (OSError, ValueError, IndexError) as error:
            raise bad(f"The image archive has no file {shown(name)}.") from error
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise bad(f"{shown(name)} of the image archive is no file.")
        return os.fdopen(file, "rb")


class _Tar:
    """An uncompressed tar that is listed once and then read in place."""

    def __init__(self, raw: IO[bytes], label: str) -> None:
        self._raw = raw
        self._files: dict[str, tuple[int, int]] = {}
        self._links: dict[str, str] = {}
        try:
            self._list()
        except (tarfile.TarError, ValueError, OverflowError, IndexError, TypeError) as error:
            raise bad(f"{shown(label)} is no readable tar archive: {error}.") from error

    def has(self, name: str) -> bool:
        return self._find(name) is not None

    def open(self, name: str) -> IO[bytes]:
        place = self._find(name)
        if place is None:
            raise bad(f"The image archive has no file {shown(name)}.")
        return cast("IO[bytes]", io.BufferedReader(_Part(self._raw, *place), PIECE))

    def _find(self, name: str) -> tuple[int, int] | None:
        for _ in range(_MOST_LINKS):
            try:
                name = "/".join(parts_of(name))
            except ValueError:
                return None
            if name not in self._links:
                return self._files.get(name)
            name = self._links[name]
        return None

    def _list(self) -> None:
        bounded = _Bounded(self._raw)
        with tarfile.open(
            fileobj=cast("IO[bytes]", bounded),
            mode="r:",
            encoding="utf-8",
            errors="surrogateescape",
        ) as archive:
            while (entry := archive.next()) is not None:
                bounded.refill()
                archive.members = []  # type: ignore[attr-defined]  # it would grow with the archive
                if len(self._files) + len(self._links) > MOST_MEMBERS:
                    raise ValueError(f"it has more than {MOST_MEMBERS:,} members")
                name = "/".join(parts_of(entry.name))
                if entry.isreg() and entry.sparse is None:
                    if entry.size < 0:
                        raise ValueError(f"{shown(name)} has a negative size")
                    self._files[name] = (entry.offset_data, entry.size)
                    self._links.pop(name, None)
                elif entry.islnk():
                    self._links[name] = entry.linkname
                elif entry.issym():
                    # Old versions of docker save link a layer to its twin.
                    target = os.path.normpath(f"{name}/../{entry.linkname}")
                    self._links[name] = target.lstrip("/")


class _Bounded:
    """A seekable file that gives a bounded number of bytes at once: headers may lie."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw = raw
        self.refill()

    def refill(self) -> None:
        self._left = HEADER_BYTES

    def read(self, size: int = -1) -> bytes:
        if size < 0 or size > self._left:
            raise ValueError("a header in it is longer than any header is")
        data = self._raw.read(size)
        self._left -= max(len(data), 1)
        return data

    def seek(self, place: int, whence: int = 0) -> int:
        return self._raw.seek(place, whence)

    def tell(self) -> int:
        return self._raw.tell()


class _Part(io.RawIOBase):
    """A stretch of a file."""

    def __init__(self, raw: IO[bytes], start: int, size: int) -> None:
        self._raw = raw
        self._here = start
        self._end = start + size

    def readable(self) -> bool:
        """Say that it can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer as far as the stretch goes."""
        self._raw.seek(self._here)
        data = self._raw.read(min(len(buffer), self._end - self._here))
        buffer[: len(data)] = data
        self._here += len(data)
        return len(data)


def _spool(raw: IO[bytes], plain: IO[bytes], label: str, most_bytes: int) -> None:
    stream = Decompressed(raw, most_bytes)
    try:
        while piece := stream.read(PIECE):
            plain.write(piece)
    except ValueError as error:
        raise bad(f"{shown(label)} cannot be decompressed: {error}.") from error
