"""Look at foreign files without being led astray: containment, kinds, sizes, names.

Nothing here follows a link out of the tree, opens a device or a pipe, or reads without a limit.
"""

from __future__ import annotations

import errno
import gzip
import hashlib
import os
import stat
import unicodedata
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, BinaryIO

from qualityhub.engine.digest import LEFT_OUT
from qualityhub.engine.environments.model import FileEntry
from qualityhub.engine.errors import UnreadablePackageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MIB = 1024 * 1024
MANIFEST = "qualityhub.toml"
_CHUNK = 256 * 1024
_LINK_LENGTH = 4096


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """How much of a package is read before it is refused.

    Attributes:
        file_bytes: One file, also after decompression.
        image_bytes: One file that by its name may be the archive of an image.
        total_bytes: All files together.
        entries: Files, links and folders.
        line_bytes: One line of a JSONL file.
        rows: Rows of one environment.
        source_bytes: One Python, TOML or text file that we parse.
        depth: Folders within folders.
    """

    file_bytes: int = 64 * MIB
    image_bytes: int = 2048 * MIB
    total_bytes: int = 2048 * MIB
    entries: int = 200_000
    line_bytes: int = 16 * MIB
    rows: int = 200_000
    source_bytes: int = 1 * MIB
    depth: int = 64


DEFAULT_LIMITS = ReadLimits()
_IMAGES = (".tar", ".tar.gz", ".tgz", ".tar.zst")


def walk(root: Path, limits: ReadLimits = DEFAULT_LIMITS) -> tuple[FileEntry, ...]:
    """Return every entry of the tree below a folder, sorted by path.

    The owner's manifest at the root is not part of it; see ``engine/digest.py``.

    Raises:
        UnreadablePackageError: A device, pipe or socket, a link out of the tree, a name that is
            not UTF-8, two names that normalise to one, or a limit passed.
    """
    top = Path(os.path.realpath(root))
    entries: dict[str, FileEntry] = {}
    total = 0
    seen = 0
    for item, relative in _scan(top, limits):
        seen += 1
        if seen > limits.entries:
            raise too_large(f"The package has more than {limits.entries:,} entries.")
        path = _tidy_name(relative)
        if path == MANIFEST:
            continue
        info = item.stat(follow_symlinks=False)
        if stat.S_ISDIR(info.st_mode):
            continue
        if path in entries:
            raise UnreadablePackageError(
                "package.name_clash",
                f"Two entries have the same name once normalised: {shown(path)}.",
                "Rename one of them.",
            )
        if stat.S_ISLNK(info.st_mode):
            target = _contained_target(top, Path(item.path), path)
            entries[path] = FileEntry(path, "link", 0, 0, "", target)
        elif stat.S_ISREG(info.st_mode):
            size, digest = _hash_file(Path(item.path), path, limits)
            total += size
            if total > limits.total_bytes:
                raise too_large(f"The package is larger than {size_text(limits.total_bytes)}.")
            entries[path] = FileEntry(path, "file", info.st_mode & 0o111, size, digest)
        else:
            raise special_file(path)
    return tuple(entries[path] for path in sorted(entries))


def read_bytes(root: Path, relative: str, limit: int) -> bytes:
    """Return one file's bytes; the path is resolved inside the tree.

    Args:
        root: Folder that contains it.
        relative: POSIX path below root.
        limit: Largest size in bytes.

    Raises:
        UnreadablePackageError: Missing, outside the tree, no regular file, or too large.
    """
    with open_inside(root, relative) as stream:
        data = stream.read(limit + 1)
    if len(data) > limit:
        raise too_large(f"{shown(relative)} is larger than {size_text(limit)}.")
    return data


def read_text(root: Path, relative: str, limit: int = DEFAULT_LIMITS.source_bytes) -> str:
    """Return one file as text: UTF-8, a byte order mark is dropped.

    Raises:
        UnreadablePackageError: As :func:`read_bytes`, or not UTF-8.
    """
    data = read_bytes(root, relative, limit)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise not_utf8(f"{relative}:{line}") from error


def open_inside(root: Path, relative: str) -> BinaryIO:
    """Open a regular file of the tree for reading; links inside the tree are followed.

    Raises:
        UnreadablePackageError: Missing, outside the tree, or no regular file.
    """
    top = os.path.realpath(root)
    if "\0" in relative:
        raise not_found(relative)
    place = os.path.realpath(Path(top) / relative)
    if place != top and not place.startswith(top.rstrip("/") + "/"):
        raise link_escape(relative)
    return open_regular(Path(place), relative)


def open_regular(path: Path, name: str) -> BinaryIO:
    """Open exactly this file: never a link, never something that blocks.

    Raises:
        UnreadablePackageError: Missing, not readable, or no regular file.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.ENOTDIR}:
            raise not_found(name) from error
        if error.errno in {errno.ENXIO, errno.ENODEV}:
            raise special_file(name) from error
        raise UnreadablePackageError(
            "package.unreadable",
            f"Cannot read {shown(name)}: {os.strerror(error.errno or 0)}.",
            "Check its permissions.",
        ) from error
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        if stat.S_ISDIR(mode):
            raise UnreadablePackageError(
                "package.unreadable", f"{shown(name)} is a folder, a file was expected."
            )
        raise special_file(name)
    return os.fdopen(handle, "rb")


def lines(root: Path, relative: str, limits: ReadLimits) -> Iterator[tuple[int, bytes]]:
    """Yield the numbered lines of a plain or gzip-compressed file, without line ends.

    Raises:
        UnreadablePackageError: A line, or the decompressed file, passes its limit; broken gzip.
    """
    with open_inside(root, relative) as raw:
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        stream: BinaryIO = gzip.GzipFile(fileobj=raw) if packed else raw  # type: ignore[assignment]
        left = limits.file_bytes
        number = 0
        try:
            while line := stream.readline(min(limits.line_bytes, left) + 1):
                number += 1
                left -= len(line)
                if left < 0:
                    extra = ", once decompressed" if packed else ""
                    raise too_large(
                        f"{shown(relative)} is larger than {size_text(limits.file_bytes)}{extra}."
                    )
                if len(line) > limits.line_bytes:
                    raise too_large(
                        f"{shown(relative)}:{number} is a line longer than "
                        f"{size_text(limits.line_bytes)}."
                    )
                if number == 1:
                    line = line.removeprefix(b"\xef\xbb\xbf")
                yield number, line.rstrip(b"\r\n")
        except (gzip.BadGzipFile, zlib.error, EOFError) as error:
            raise UnreadablePackageError(
                "package.unreadable",
                f"{shown(relative)} is not a complete gzip file: {error}.",
                "Compress it again, or give the plain file.",
            ) from error


def entry_of(root: Path, relative: str, limits: ReadLimits = DEFAULT_LIMITS) -> FileEntry:
    """Return the entry of one regular file.

    Raises:
        UnreadablePackageError: Missing, outside the tree, no regular file, or too large.
    """
    digest = hashlib.sha256()
    size = 0
    with open_inside(root, relative) as stream:
        mode = os.fstat(stream.fileno()).st_mode & 0o111
        while chunk := stream.read(_CHUNK):
            size += len(chunk)
            if size > limits.file_bytes:
                raise too_large(f"{shown(relative)} is larger than {size_text(limits.file_bytes)}.")
            digest.update(chunk)
    return FileEntry(_tidy_name(relative), "file", mode, size, digest.hexdigest())


def copy_entries(
    root: Path, entries: Iterable[FileEntry], target: Path, *, below: str = ""
) -> None:
    """Copy exactly these entries into a folder: what was read is what runs.

    Anything else below root (byte code, repository data, rows) stays behind. Every file is hashed
    again on the way. A link whose target is not copied dangles there.

    Args:
        root: Folder of the package.
        entries: What to copy, all of them within ``below``.
        target: Folder that receives them; made where it is missing.
        below: Folder of the package that ``target`` stands for.

    Raises:
        UnreadablePackageError: A file is no longer what was read.
    """
    top = Path(os.path.realpath(root))
    target.mkdir(parents=True, exist_ok=True)
    for entry in entries:
        place = target / PurePosixPath(entry.path).relative_to(below or ".")
        place.parent.mkdir(parents=True, exist_ok=True)
        if entry.kind == "link":
            place.symlink_to(entry.target)
            continue
        digest = hashlib.sha256()
        with open_inside(top, _on_disk(top, entry.path)) as source, place.open("wb") as copy:
            while chunk := source.read(_CHUNK):
                digest.update(chunk)
                copy.write(chunk)
        if digest.hexdigest() != entry.sha256:
            raise UnreadablePackageError(
                "package.changed",
                f"{shown(entry.path)} changed while it was being read.",
                "Inspect again when nothing writes to the folder.",
            )
        place.chmod(0o644 | entry.mode)


def shown(path: str) -> str:
    """Return a foreign name that is safe to print: control characters escaped, length bounded."""
    safe = "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in path
    )
    return safe if len(safe) <= 200 else safe[:197] + "..."


def size_text(size: int) -> str:
    """Return a byte count for people."""
    for unit, factor in (("GiB", 1024 * MIB), ("MiB", MIB), ("KiB", 1024)):
        if size >= factor:
            return f"{size / factor:g} {unit}"
    return f"{size} bytes"


def not_found(path: str) -> UnreadablePackageError:
    """Return the error for a missing file."""
    return UnreadablePackageError(
        "package.not_found", f"There is no {shown(path)}.", "Check the spelling and the folder."
    )


def too_large(message: str) -> UnreadablePackageError:
    """Return the error for a limit passed."""
    return UnreadablePackageError(
        "package.too_large",
        message,
        "Put the environment into a folder of its own, without data it does not need.",
    )


def special_file(path: str) -> UnreadablePackageError:
    """Return the error for a device, pipe or socket."""
    return UnreadablePackageError(
        "package.special_file",
        f"{shown(path)} is a device, a pipe or a socket.",
        "Packages hold files, folders and links inside the tree.",
    )


def link_escape(path: str) -> UnreadablePackageError:
    """Return the error for a link that leaves the tree."""
    return UnreadablePackageError(
        "package.link_escape",
        f"{shown(path)} points out of the package.",
        "Copy the file into the package, or make the link relative and inside it.",
    )


def not_utf8(place: str) -> UnreadablePackageError:
    """Return the error for text or names that are not UTF-8."""
    return UnreadablePackageError(
        "package.not_utf8", f"{shown(place)} is not UTF-8.", "Save it as UTF-8."
    )


def _scan(top: Path, limits: ReadLimits) -> Iterator[tuple[os.DirEntry[str], str]]:
    waiting: list[tuple[Path, str, int]] = [(top, "", 0)]
    while waiting:
        folder, prefix, depth = waiting.pop()
        if depth > limits.depth:
            raise too_large(f"{shown(prefix)} is nested deeper than {limits.depth} folders.")
        try:
            with os.scandir(folder) as items:
                for item in items:
                    if item.name in LEFT_OUT:
                        continue
                    relative = prefix + item.name
                    yield item, relative
                    if item.is_dir(follow_symlinks=False):
                        waiting.append((folder / item.name, relative + "/", depth + 1))
        except OSError as error:
            raise UnreadablePackageError(
                "package.unreadable",
                f"Cannot list {shown(prefix or '.')}: {os.strerror(error.errno or 0)}.",
                "Check its permissions.",
            ) from error


def _tidy_name(relative: str) -> str:
    try:
        relative.encode()
    except UnicodeEncodeError as error:
        raw = os.fsencode(relative).decode("utf-8", "backslashreplace")
        raise not_utf8(f"The name {raw}") from error
    return unicodedata.normalize("NFC", relative)


def _contained_target(top: Path, link: Path, path: str) -> str:
    target = os.readlink(link)  # noqa: PTH115  As written; Path would tidy it.
    if len(target) > _LINK_LENGTH or PurePosixPath(target).is_absolute():
        raise link_escape(path)
    place = os.path.realpath(link)
    if place != str(top) and not place.startswith(str(top).rstrip("/") + "/"):
        raise link_escape(path)
    _tidy_name(target)
    return target


def _is_image(name: str) -> bool:
    return name.lower().endswith(_IMAGES)


def _hash_file(path: Path, name: str, limits: ReadLimits) -> tuple[int, str]:
    digest = hashlib.sha256()
    size = 0
    most = max(limits.file_bytes, limits.image_bytes) if _is_image(name) else limits.file_bytes
    with open_regular(path, name) as stream:
        if os.fstat(stream.fileno()).st_size > most:
            raise too_large(f"{shown(name)} is larger than {size_text(most)}.")
        while chunk := stream.read(_CHUNK):
            size += len(chunk)
            if size > most:
                raise too_large(f"{shown(name)} is larger than {size_text(most)}.")
            digest.update(chunk)
    return size, digest.hexdigest()


def _on_disk(top: Path, path: str) -> str:
    """Return the name on disk, which may not be normalised, of a normalised path."""
    if (top / path).exists():
        return path
    place = top
    for part in PurePosixPath(path).parts:
        names = (item for item in os.listdir(place))  # noqa: PTH208
        place /= next((n for n in names if unicodedata.normalize("NFC", n) == part), part)
    return str(place.relative_to(top))
