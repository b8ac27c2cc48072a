"""Write foreign trees to disk: from a tar stream, or by removing one. Trusts nothing in them."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

from qualityhub.engine.errors import MachineryError

MAX_ENTRIES = 2_000_000
MAX_BYTES = 64 * 1024**3
_FOLDER = os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC
_PIECE = 1024 * 1024


@dataclass(slots=True)
class Unpacked:
    """What came out of an archive.

    Attributes:
        entries: Files, folders and links written.
        bytes: Content of the files.
        skipped: Devices, pipes and sockets that were left out.
    """

    entries: int = 0
    bytes: int = 0
    skipped: int = 0


def unpack_stream(stream: IO[bytes], target: Path, owner: int, *, strip: str = "") -> Unpacked:
    """Write a tar stream below a new folder.

    No entry is written through a link, outside the folder or with set-id bits; devices, pipes and
    sockets are left out.

    Args:
        stream: Uncompressed tar.
        target: Folder that does not exist yet.
        owner: First host id of the mapped range, added to the ids in the archive; negative leaves
            everything to us.
        strip: Leading folder of the archive to leave out, e.g. ``app``.

    Raises:
        MachineryError: The archive is broken, too large or not safe to unpack.
    """
    target.mkdir(parents=True, mode=0o755)
    seen = Unpacked()
    modes: list[tuple[str, int]] = []
    root = os.open(target, _FOLDER)
    place = _Place(root, owner, strip)
    try:
        if owner >= 0:
            os.fchown(root, owner, owner)
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for entry in archive:
                parts = _parts(entry.name, strip)
                if parts is None:
                    continue
                _count(seen, entry)
                _write(archive, entry, parts, place, seen)
                if entry.isdir():
                    modes.append(("/".join(parts) or ".", entry.mode & 0o1777))
        # Last, or a folder without its write bit could not be filled.
        for path, mode in sorted(modes, reverse=True):
            with contextlib.suppress(OSError):
                _set_folder_mode(root, path, mode)
    except (tarfile.TarError, OSError, ValueError) as error:
        raise MachineryError("tree.unpack", f"an archive could not be unpacked: {error}") from error
    finally:
        os.close(root)
    return seen


def _count(seen: Unpacked, entry: tarfile.TarInfo) -> None:
    seen.entries += 1
    seen.bytes += max(0, entry.size)
    if seen.entries > MAX_ENTRIES or seen.bytes > MAX_BYTES:
        raise ValueError("it is larger than this installation accepts")


def _parts(name: str, strip: str) -> list[str] | None:
    parts = [part for part in name.split("/") if part not in {"", "."}]
    if ".." in parts or "\0" in name:
        raise ValueError(f"{name!a} leaves the archive")
    if strip:
        if parts[:1] != [strip]:
            return None
        parts = parts[1:]
    return parts


class _Place(NamedTuple):
    """Where a tree is written: its open root, whose it is, what is left off its names."""

    root: int
    owner: int
    strip: str


def _write(
    archive: tarfile.TarFile,
    entry: tarfile.TarInfo,
    parts: list[str],
    place: _Place,
    seen: Unpacked,
) -> None:
    root, owner, strip = place
    if not parts:
        if entry.isdir() and owner >= 0:
            os.fchown(root, owner + entry.uid, owner + entry.gid)
        return
    here = _enter(root, parts[:-1], owner)
    name = parts[-1]
    try:
        if entry.isdir():
            _make_folder(here, name)
        elif entry.issym():
            _clear(here, name)
            os.symlink(entry.linkname, name, dir_fd=here)
        elif entry.islnk():
            _clear(here, name)
            _link(root, _parts(entry.linkname, strip) or [], here, name)
            return
        elif entry.isreg():
            _clear(here, name)
            _write_file(archive, entry, here, name)
        else:
            seen.skipped += 1
            return
        if owner >= 0:
            os.chown(name, owner + entry.uid, owner + entry.gid, dir_fd=here, follow_symlinks=False)
    finally:
        os.close(here)


def _enter(root: int, parts: list[str], owner: int) -> int:
    here = os.dup(root)
    for part in parts:
        try:
            below = os.open(part, _FOLDER, dir_fd=here)
        except FileNotFoundError:
            os.mkdir(part, 0o755, dir_fd=here)
            if owner >= 0:
                os.chown(part, owner, owner, dir_fd=here, follow_symlinks=False)
            below = os.open(part, _FOLDER, dir_fd=here)
        finally:
            os.close(here)
        here = below
    return here


def _make_folder(here: int, name: str) -> None:
    try:
        os.mkdir(name, 0o755, dir_fd=here)
    except FileExistsError:
        if not stat.S_ISDIR(os.stat(name, dir_fd=here, follow_symlinks=False).st_mode):
            os.unlink(name, dir_fd=here)
            os.mkdir(name, 0o755, dir_fd=here)


def _clear(here: int, name: str) -> None:
    with contextlib.suppress(FileNotFoundError, IsADirectoryError):
        os.unlink(name, dir_fd=here)


def _link(root: int, target: list[str], here: int, name: str) -> None:
    if not target:
        raise ValueError("a hard link to nothing")
    folder = _enter(root, target[:-1], -1)
    try:
        if not stat.S_ISREG(os.stat(target[-1], dir_fd=folder, follow_symlinks=False).st_mode):
            raise ValueError("a hard link to something that is no file")
        os.link(target[-1], name, src_dir_fd=folder, dst_dir_fd=here, follow_symlinks=False)
    finally:
        os.close(folder)


def _write_file(archive: tarfile.TarFile, entry: tarfile.TarInfo, here: int, name: str) -> None:
    content = archive.extractfile(entry)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(name, flags, 0o600, dir_fd=here)
    with os.fdopen(file, "wb") as sink:
        if content is not None:
            while piece := content.read(_PIECE):
                sink.write(piece)
        os.fchmod(sink.fileno(), entry.mode & 0o777)
    os.utime(name, (entry.mtime, entry.mtime), dir_fd=here, follow_symlinks=False)


def _set_folder_mode(root: int, path: str, mode: int) -> None:
    here = _enter(root, [] if path == "." else path.split("/"), -1)
    try:
        os.fchmod(here, mode)
    finally:
        os.close(here)


def remove_tree(path: Path) -> None:
    """Remove a tree that may have folders without their write bit; a missing one is fine."""
    if not path.exists():
        return
    for here, folders, _ in os.walk(path):
        for name in folders:
            folder = Path(here) / name
            if not folder.is_symlink():
                with contextlib.suppress(OSError):
                    folder.chmod(0o700)
    shutil.rmtree(path, ignore_errors=True)
