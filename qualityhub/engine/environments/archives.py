"""Unpack foreign archives without being led astray, and pack a tree the same way every time."""

from __future__ import annotations

import errno
import gzip
import os
import shutil
import struct
import tarfile
import tempfile
import zipfile
import zlib
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO, cast

from qualityhub.engine.environments.archive_target import Target, refuse
from qualityhub.engine.environments.archive_zip import unpack_zip
from qualityhub.engine.environments.files import (
    MANIFEST,
    MIB,
    entry_of,
    open_inside,
    shown,
    walk,
)
from qualityhub.engine.errors import ConflictError, InvalidInputError, MachineryError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from qualityhub.engine.environments.model import FileEntry

_HEADER_BYTES = 8 * MIB
_HEADS = (
    (b"PK\x03\x04", "zip"),
    (b"PK\x05\x06", "zip"),
    (b"\x1f\x8b", "tar.gz"),
    (b"\x28\xb5\x2f\xfd", "tar.zst"),
)


@dataclass(frozen=True, slots=True)
class ArchiveLimits:
    """How much an archive may unpack to.

    Attributes:
        file_bytes: One file.
        total_bytes: All files together.
        entries: Files, links and folders.
        ratio: Unpacked bytes for each packed one, judged once ``ratio_from`` bytes are unpacked.
        ratio_from: Bytes below which no ratio is judged.
    """

    file_bytes: int = 64 * MIB
    total_bytes: int = 2048 * MIB
    entries: int = 200_000
    ratio: int = 200
    ratio_from: int = 64 * MIB


DEFAULT_ARCHIVE_LIMITS = ArchiveLimits()


def extract_archive(
    data: BinaryIO | Path,
    destination: Path,
    *,
    limits: ArchiveLimits = DEFAULT_ARCHIVE_LIMITS,
) -> None:
    """Unpack an archive into a folder that does not exist yet: all of it, or nothing.

    The kind is told by content: zip, tar, or tar compressed by gzip. Of modes only the execute
    bits survive; times and owners do not.

    Args:
        data: A file, or a seekable binary stream.
        destination: Folder to be made; its parent is made where it is missing.
        limits: How much is unpacked.

    Raises:
        InvalidInputError: ``archive.*``: what is wrong with the archive.
        ConflictError: ``archive.exists``: the destination is already there.
    """
    if destination.exists():
        raise ConflictError("archive.exists", f"{destination.name} is already there.")
    destination.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=".incoming-", dir=destination.parent))
    try:
        content = fresh / "content"
        content.mkdir(mode=0o755)
        with _opened(data) as stream:
            _unpack(stream, Target(content, limits, _length(stream)))
        _publish(content, destination)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def pack_tree(root: Path, target: BinaryIO, *, files: Iterable[FileEntry] | None = None) -> None:
    """Write a tree as tar.gz: sorted, without times and owners, so equal trees give equal bytes.

    What the digest leaves out stays behind; the owner's manifest travels along.

    Args:
        root: Folder of the package.
        target: Where the archive is written.
        files: Entries to pack; None packs every entry of the tree.

    Raises:
        UnreadablePackageError: The tree cannot be read, or changed while it was packed.
    """
    entries = {entry.path: entry for entry in (walk(root) if files is None else files)}
    if (root / MANIFEST).is_file():
        entries[MANIFEST] = entry_of(root, MANIFEST)
    with (
        gzip.GzipFile(fileobj=target, mode="wb", filename="", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path in sorted(entries):
            _pack(archive, root, entries[path])


def _pack(archive: tarfile.TarFile, root: Path, entry: FileEntry) -> None:
    info = tarfile.TarInfo(entry.path)
    if entry.kind == "link":
        info.type, info.linkname, info.mode = tarfile.SYMTYPE, entry.target, 0o777
        archive.addfile(info)
        return
    info.size, info.mode = entry.size, 0o644 | entry.mode
    with open_inside(root, entry.path) as stream:
        try:
            archive.addfile(info, stream)
        except OSError as error:
            raise MachineryError(
                "archive.not_written", f"Cannot pack {entry.path}: {error}."
            ) from error


@contextmanager
def _opened(data: BinaryIO | Path) -> Iterator[BinaryIO]:
    if isinstance(data, Path):
        with data.open("rb") as stream:
            yield stream
    else:
        yield data


def _length(stream: BinaryIO) -> int:
    size = stream.seek(0, os.SEEK_END)
    stream.seek(0)
    return size


def _unpack(stream: BinaryIO, target: Target) -> None:
    head = stream.read(512)
    stream.seek(0)
    kind = next((kind for magic, kind in _HEADS if head.startswith(magic)), "")
    if not kind and head[257:262] == b"ustar":
        kind = "tar"
    try:
        if kind == "zip":
            unpack_zip(stream, target)
        elif kind == "tar.gz":
            with gzip.GzipFile(fileobj=stream) as plain:
                _unpack_tar(_Forward(plain), target)
        elif kind == "tar":
            _unpack_tar(_Forward(stream), target)
        else:
            raise refuse(
                "unknown_format",
                f"{kind or 'This'} is no archive that is known here.",
                "Send a .zip, .tar or .tar.gz.",
            )
    except (
        tarfile.TarError,
        zipfile.BadZipFile,
        gzip.BadGzipFile,
        zlib.error,
        EOFError,
        UnicodeError,
        ValueError,
        OverflowError,
        RuntimeError,
        LookupError,
        struct.error,
    ) as error:
        raise _broken(error) from error
    except OSError as error:
        if error.errno == errno.EINVAL:  # A place before the start of the file.
            raise _broken(error) from error
        raise MachineryError(
            "archive.not_stored", f"Cannot unpack the archive: {error.strerror}."
        ) from error
    target.finish()


def _broken(error: Exception) -> InvalidInputError:
    why = shown(str(error)) or type(error).__name__
    return refuse("broken", f"The archive is broken: {why}.", "Make it again.")


def _unpack_tar(stream: _Forward, target: Target) -> None:
    with tarfile.open(fileobj=cast("IO[bytes]", stream), mode="r:", errorlevel=2) as archive:
        for member in archive:
            # Otherwise the whole list of members stays in memory.
            archive.members.clear()  # type: ignore[attr-defined]
            stream.allow(member.size)
            name = member.name
            if member.isdir():
                target.add_folder(name)
            elif member.issym():
                target.add_link(name, member.linkname)
            elif member.islnk():
                target.add_copy(name, member.linkname)
            elif member.isreg() and not member.issparse():
                source = archive.extractfile(member)
                if source is None:
                    raise refuse("broken", "A file of the archive has no content.")
                target.add_file(name, source, member.size, member.mode)
            else:
                raise refuse(
                    "special_file",
                    f"The archive holds a device, pipe or sparse file: {name}.",
                    "Archives hold files, folders and links inside the tree.",
                )


class _Forward:
    """A stream that goes forward alone and reads no more than one member at a time.

    A tar header may claim a name or a list of gigabytes, which the tar reader would take into
    memory.
    """

    def __init__(self, stream: BinaryIO | gzip.GzipFile) -> None:
        self._stream = stream
        self._place = 0
        self._allowed = _HEADER_BYTES

    def allow(self, size: int) -> None:
        """Let the content of a member, and the headers of the next one, be read."""
        self._allowed = size + _HEADER_BYTES

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes.

        Raises:
            InvalidInputError: ``archive.too_large``.
        """
        self._allowed -= size
        if size < 0 or self._allowed < 0:
            raise refuse("too_large", "A header of the archive claims to be very large.")
        data = self._stream.read(size)
        self._place += len(data)
        return data

    def tell(self) -> int:
        """Return the place in the stream."""
        return self._place

    def seek(self, place: int, whence: int = os.SEEK_SET) -> int:
        """Go to a later place.

        Raises:
            InvalidInputError: ``archive.broken``: an earlier place.
        """
        if whence != os.SEEK_SET or place < self._place:
            raise refuse("broken", "The archive is not in order.")
        while self._place < place:
            if not self.read(min(256 * 1024, place - self._place)):
                raise EOFError("it ends too early")
        return self._place


def _publish(content: Path, destination: Path) -> None:
    try:
        content.rename(destination)
    except OSError as error:
        if destination.exists():
            raise ConflictError(
                "archive.exists", f"{destination.name} is already there."
            ) from error
        raise MachineryError(
            "archive.not_stored", f"Cannot store the unpacked archive: {error.strerror}."
        ) from error
