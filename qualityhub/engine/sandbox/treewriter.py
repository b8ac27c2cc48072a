"""Write the entries of foreign archives below one folder, one layer over another.

Everything goes through open folders, never through a path: no link that an archive brought is
followed, and nothing is written outside. Set-id bits are dropped; devices and sockets are left out.
"""

from __future__ import annotations

import contextlib
import math
import os
import stat
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from qualityhub.engine.sandbox import idmaps
from qualityhub.engine.sandbox.tarstream import PIECE, parts_of, shown

FOLDER = os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC
NOBODY = 65_534
WHITEOUT = ".wh."
OPAQUE = ".wh..wh..opq"
_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LATEST = 1 << 33


class TooLargeError(ValueError):
    """More bytes or entries than are accepted."""


@dataclass(slots=True)
class Unpacked:
    """What came out of an archive.

    Attributes:
        entries: Files, folders and links written.
        bytes: Content of the files.
        skipped: Devices, sockets and, unless they are kept, pipes that were left out.
    """

    entries: int = 0
    bytes: int = 0
    skipped: int = 0


class TreeWriter:
    """Writes one tree; close it in any case, finish it when everything is written.

    Raises (every method):
        ValueError: An entry is not safe to write.
        OSError: The tree cannot take it, or this host is at its end.
    """

    def __init__(
        self, target: Path, owner: int, *, most_entries: int, most_bytes: int, pipes: bool = False
    ) -> None:
        """Make the folder.

        Args:
            target: Folder that does not exist yet.
            owner: First host id of the mapped range; negative leaves everything to us.
            most_entries: Of all layers together.
            most_bytes: Content of all layers together.
            pipes: Whether named pipes are made.
        """
        target.mkdir(parents=True, mode=0o755)
        self.seen = Unpacked()
        self._owner = owner
        self._count = idmaps.size_of(owner)
        self._most_entries = most_entries
        self._most_bytes = most_bytes
        self._pipes = pipes
        self._root = os.open(target, FOLDER)
        # Set last: a folder without its write bit could not be filled.
        self._folders: dict[str, tuple[int, float]] = {}
        # Paths that the present layer wrote, with their parents: whiteouts spare them.
        self._written: set[str] | None = None
        self._near: tuple[str, int] | None = None
        if owner >= 0:
            os.fchown(self._root, owner, owner)

    def begin_layer(self) -> None:
        """Begin a layer: from now on whiteouts mean something, to what earlier layers wrote."""
        self._written = set()

    def add(self, entry: tarfile.TarInfo, parts: list[str], content: IO[bytes] | None) -> None:
        """Write one entry.

        Args:
            entry: From the archive.
            parts: Where it goes; none for the root.
            content: Of a file.
        """
        self._count_in(entry)
        if not parts:
            if entry.isdir():
                self._own(self._root, entry)
                self._folders["."] = (entry.mode & 0o3777 | 0o700, entry.mtime)
            return
        name = parts[-1]
        if self._written is not None and name.startswith(WHITEOUT):
            self._whiteout(parts[:-1], name)
            return
        path = "/".join(parts)
        here = self._enter(parts[:-1])
        if entry.isdir():
            _make_folder(here, name)
            self._own_at(here, name, entry)
            self._folders[path] = (entry.mode & 0o3777, entry.mtime)
        elif not self._make_other(entry, here, name, path, content):
            self.seen.skipped += 1
            return
        self._mark(path)

    def finish(self) -> Unpacked:
        """Give the folders their modes and times."""
        self._leave()
        for path in sorted(self._folders, reverse=True):
            mode, changed = self._folders[path]
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                here = self._open([] if path == "." else path.split("/"))
                try:
                    os.fchmod(here, mode)
                    os.utime(here, (_time(changed),) * 2)
                finally:
                    os.close(here)
        return self.seen

    def close(self) -> None:
        """Let go of the folder."""
        self._leave()
        if self._root >= 0:
            os.close(self._root)
            self._root = -1

    def _count_in(self, entry: tarfile.TarInfo) -> None:
        self.seen.entries += 1
        self.seen.bytes += entry.size if entry.isreg() else 0
        if self.seen.entries > self._most_entries:
            raise TooLargeError(f"it is larger than accepted: over {self._most_entries:,} entries")
        if self.seen.bytes > self._most_bytes:
            raise TooLargeError(f"it is larger than accepted: over {self._most_bytes:,} bytes")

    def _mark(self, path: str) -> None:
        if self._written is None:
            return
        while path and path not in self._written:
            self._written.add(path)
            path = path.rpartition("/")[0]

    def _make_other(
        self,
        entry: tarfile.TarInfo,
        here: int,
        name: str,
        path: str,
        content: IO[bytes] | None,
    ) -> bool:
        if entry.islnk():
            target = parts_of(entry.linkname)
            if target != path.split("/"):
                self._clear(here, name, path)
                self._link(target, here, name)
            return True
        if entry.issym():
            self._clear(here, name, path)
            os.symlink(entry.linkname, name, dir_fd=here)
        elif entry.isreg():
            self._clear(here, name, path)
            self._write_file(entry, content, here, name)
        elif entry.isfifo() and self._pipes:
            self._clear(here, name, path)
            os.mkfifo(name, 0o600, dir_fd=here)
            os.chmod(name, entry.mode & 0o777, dir_fd=here)
        else:
            return False
        self._own_at(here, name, entry)
        os.utime(name, (_time(entry.mtime),) * 2, dir_fd=here, follow_symlinks=False)
        return True

    def _write_file(
        self, entry: tarfile.TarInfo, content: IO[bytes] | None, here: int, name: str
    ) -> None:
        file = os.open(name, _FILE, 0o600, dir_fd=here)
        with os.fdopen(file, "wb", buffering=0) as sink:
            left = entry.size
            while content is not None and left and (piece := content.read(min(PIECE, left))):
                left -= len(piece)
                if piece.count(0) == len(piece):
                    sink.seek(len(piece), os.SEEK_CUR)
                    continue
                view = memoryview(piece)
                while view:
                    view = view[sink.write(view) :]
            if left:
                raise ValueError(f"{shown(entry.name)} ends early")
            sink.truncate(entry.size)
            os.fchmod(sink.fileno(), entry.mode & 0o777)

    def _link(self, target: list[str], here: int, name: str) -> None:
        if not target:
            raise ValueError("a hard link to the root")
        folder = self._open(target[:-1])
        try:
            kind = os.stat(target[-1], dir_fd=folder, follow_symlinks=False).st_mode
            if stat.S_ISDIR(kind):
                raise ValueError(f"a hard link to the folder {shown('/'.join(target))}")
            os.link(target[-1], name, src_dir_fd=folder, dst_dir_fd=here, follow_symlinks=False)
        except FileNotFoundError as error:
            raise ValueError(f"a hard link to {shown('/'.join(target))}, which is not there") from (
                error
            )
        finally:
            os.close(folder)

    def _whiteout(self, parents: list[str], name: str) -> None:
        if name != OPAQUE and name.startswith(WHITEOUT * 2):
            return  # Book-keeping of an old storage driver.
        hidden = name.removeprefix(WHITEOUT)
        if hidden in {"", ".", ".."}:
            raise ValueError(f"{shown('/'.join([*parents, name]))} would remove a parent folder")
        try:
            here = self._open(parents)
        except (FileNotFoundError, NotADirectoryError):
            return
        try:
            self._leave()
            if name != OPAQUE:
                self._remove_older(here, hidden, "/".join([*parents, hidden]))
                return
            for child in _names(here):
                self._remove_older(here, child, "/".join([*parents, child]))
        finally:
            os.close(here)

    def _remove_older(self, here: int, name: str, path: str) -> None:
        """Remove what earlier layers wrote at a path, and below it."""
        if self._written is None or path not in self._written:
            self._remove(here, name, path)
            return
        try:
            below = os.open(name, FOLDER, dir_fd=here)
        except OSError:
            return
        try:
            for child in _names(below):
                self._remove_older(below, child, f"{path}/{child}")
        finally:
            os.close(below)

    def _remove(self, here: int, name: str, path: str) -> None:
        try:
            os.unlink(name, dir_fd=here)
        except FileNotFoundError:
            return
        except IsADirectoryError:
            below = os.open(name, FOLDER, dir_fd=here)
            try:
                for child in _names(below):
                    self._remove(below, child, f"{path}/{child}")
            finally:
                os.close(below)
            os.rmdir(name, dir_fd=here)
        self._folders.pop(path, None)

    def _clear(self, here: int, name: str, path: str) -> None:
        """Make room for what is no folder."""
        with contextlib.suppress(FileNotFoundError):
            seen = os.stat(name, dir_fd=here, follow_symlinks=False)
            if not stat.S_ISDIR(seen.st_mode):
                os.unlink(name, dir_fd=here)
                return
            self._remove(here, name, path)

    def _enter(self, parts: list[str]) -> int:
        """Return the open folder of some parts, made where it is missing; it stays ours."""
        path = "/".join(parts)
        if self._near is not None and self._near[0] == path:
            return self._near[1]
        self._leave()
        here = os.dup(self._root)
        for part in parts:
            try:
                below = self._step(here, part)
            finally:
                os.close(here)
            here = below
        self._near = (path, here)
        return here

    def _step(self, here: int, part: str) -> int:
        try:
            return os.open(part, FOLDER, dir_fd=here)
        except FileNotFoundError:
            os.mkdir(part, 0o755, dir_fd=here)
            if self._owner >= 0:
                os.chown(part, self._owner, self._owner, dir_fd=here, follow_symlinks=False)
            return os.open(part, FOLDER, dir_fd=here)
        except NotADirectoryError as error:
            kind = os.stat(part, dir_fd=here, follow_symlinks=False).st_mode
            what = "link" if stat.S_ISLNK(kind) else "file"
            raise ValueError(f"an entry lies below {shown(part)}, which is a {what}") from error

    def _open(self, parts: list[str]) -> int:
        """Return a folder that is there; the caller closes it."""
        here = os.dup(self._root)
        for part in parts:
            try:
                below = os.open(part, FOLDER, dir_fd=here)
            finally:
                os.close(here)
            here = below
        return here

    def _leave(self) -> None:
        if self._near is not None:
            os.close(self._near[1])
            self._near = None

    def _own(self, file: int, entry: tarfile.TarInfo) -> None:
        if self._owner >= 0:
            os.fchown(file, self._id(entry.uid), self._id(entry.gid))

    def _own_at(self, here: int, name: str, entry: tarfile.TarInfo) -> None:
        if self._owner >= 0:
            os.chown(
                name,
                self._id(entry.uid),
                self._id(entry.gid),
                dir_fd=here,
                follow_symlinks=False,
            )

    def _id(self, number: int) -> int:
        # Never outside the range: a negative or huge id would be one of the host's own.
        return self._owner + (number if 0 <= number < self._count else min(NOBODY, self._count - 1))


def _names(folder: int) -> list[str]:
    with os.scandir(folder) as items:
        return [item.name for item in items]


def _make_folder(here: int, name: str) -> None:
    try:
        os.mkdir(name, 0o755, dir_fd=here)
    except FileExistsError:
        if not stat.S_ISDIR(os.stat(name, dir_fd=here, follow_symlinks=False).st_mode):
            os.unlink(name, dir_fd=here)
            os.mkdir(name, 0o755, dir_fd=here)


def _time(stamp: float) -> float:
    """Return a time that any file system takes."""
    return float(int(stamp)) if math.isfinite(stamp) and 0 <= stamp < _LATEST else 0.0
