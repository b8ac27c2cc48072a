"""The stage: one sized tmpfs per command that holds everything the command's world is made of.

The stage covers ``/tmp`` of the keeper's own mount namespace, so every source is opened before.
Layout: ``m/N`` mounted sources, ``u/N`` and ``w/N`` upper and work folders, ``o/N`` the merged
overlays, ``s/N`` empty folders, ``r`` the root of a world without an image, ``b`` bubblewrap.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import stat

from qualityhub.engine.sandbox.launcher import kernel

STAGE = "/tmp"  # noqa: S108 - covered by a mount of our own before anything is written
_FOLDER = os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC
# The stage's own folders are not what the command wrote.
_OWN_INODES = 64


class StageError(Exception):
    """The world could not be built as asked."""


class Source:
    """A host file or folder, opened before the stage covers anything."""

    __slots__ = ("file", "is_folder", "ours", "path")

    def __init__(self, path: str, id_base: int) -> None:
        self.path = path
        try:
            self.file = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError as error:
            raise StageError(f"cannot open {path}: {error.strerror}") from error
        seen = os.fstat(self.file)
        self.is_folder = stat.S_ISDIR(seen.st_mode)
        if not self.is_folder and not stat.S_ISREG(seen.st_mode):
            raise StageError(f"{path} is neither a file nor a folder")
        # What already belongs to the mapped range needs no translation of its owners.
        self.ours = seen.st_uid >= id_base > 0


class Stage:
    """Builds the pieces of one world and knows where each path of the world lies."""

    def __init__(self, disk_bytes: int, files: int, id_base: int) -> None:
        """Prepare; nothing is mounted yet.

        Args:
            disk_bytes: Size of the tmpfs.
            files: Inodes of the tmpfs.
            id_base: Host id that is 0 inside, or 0 where the range is not ours to choose.
        """
        self._disk_bytes = disk_bytes
        self._files = files
        self._id_base = id_base
        self._count = 0
        # Longest target first: (target, where it lies, writable).
        self._places: list[tuple[str, str, bool]] = []

    def mount(self) -> None:
        """Cover ``/tmp`` with the sized tmpfs."""
        options = f"size={self._disk_bytes},nr_inodes={self._files + _OWN_INODES},mode=755"
        if self._id_base:
            options += f",uid={self._id_base},gid={self._id_base}"
        kernel.mount("tmpfs", STAGE, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, options)
        os.mkdir(f"{STAGE}/m")

    def bring(self, source: Source, userns: int, *, read_only: bool) -> str:
        """Mount one source on the stage and return where.

        Args:
            source: What to mount.
            userns: User namespace whose map translates owners, or -1.
            read_only: Whether the mount itself refuses writes.
        """
        place = self._fresh("m")
        if source.is_folder:
            os.mkdir(place)
        else:
            os.close(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))
        self.bring_at(source, place, userns, read_only=read_only)
        return place

    def bring_at(self, source: Source, place: str, userns: int, *, read_only: bool) -> None:
        """Mount one source at a given place of the stage, which exists."""
        attributes = kernel.ATTR_NOSUID | kernel.ATTR_NODEV
        if read_only:
            attributes |= kernel.ATTR_RDONLY
        tree = kernel.clone_tree(source.file)
        try:
            if userns >= 0 and not source.ours:
                # A file system without owner translation shows its owners as nobody: usable.
                with contextlib.suppress(OSError):
                    kernel.set_attributes(tree, 0, userns)
            kernel.set_attributes(tree, attributes)
            kernel.attach(tree, place)
        finally:
            os.close(tree)

    def scratch(self, mode: int = 0o755) -> str:
        """Return a new empty folder."""
        place = self._fresh("s")
        os.mkdir(place)
        os.chmod(place, mode)
        return place

    def overlay(self, lower: str) -> str:
        """Return a writable view of a folder on the stage."""
        upper, work, merged = self._fresh("u"), self._fresh("w"), self._fresh("o")
        mode = stat.S_IMODE(os.stat(lower).st_mode)
        for folder in (upper, work, merged):
            os.mkdir(folder)
        os.chmod(upper, mode)
        options = f"lowerdir={lower},upperdir={upper},workdir={work},userxattr"
        kernel.mount("overlay", merged, "overlay", kernel.MS_NOSUID | kernel.MS_NODEV, options)
        return merged

    def place(self, target: str, where: str, *, writable: bool) -> None:
        """Remember where a target of the world lies on the stage."""
        self._places.append((posixpath.normpath(target), where, writable))
        self._places.sort(key=lambda row: -len(row[0]))

    def ensure(self, target: str, *, is_folder: bool, mode: int = 0o755) -> None:
        """Make a mount point (or a folder) in the world, through no link of a foreign tree.

        Raises:
            StageError: A part of the path is a link or a file, or lies on something read-only.
        """
        where, parts, writable = self._locate(target)
        if not parts:
            return
        here = os.open(where, _FOLDER)
        try:
            for part in parts[:-1]:
                here = self._step(here, part, target, writable=writable)
            self._last(here, parts[-1], target, is_folder=is_folder, mode=mode, writable=writable)
        finally:
            os.close(here)

    def _step(self, here: int, part: str, target: str, *, writable: bool) -> int:
        self._last(here, part, target, is_folder=True, mode=0o755, writable=writable)
        below = os.open(part, _FOLDER, dir_fd=here)
        os.close(here)
        return below

    @staticmethod
    def _last(
        here: int, part: str, target: str, *, is_folder: bool, mode: int, writable: bool
    ) -> None:
        try:
            seen = os.stat(part, dir_fd=here, follow_symlinks=False)
        except FileNotFoundError:
            if not writable:
                raise StageError(f"{target} lies below a read-only folder without it") from None
            if is_folder:
                os.mkdir(part, dir_fd=here)
                os.chmod(part, mode, dir_fd=here)
            else:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                os.close(os.open(part, flags, 0o644, dir_fd=here))
            return
        if is_folder and not stat.S_ISDIR(seen.st_mode):
            raise StageError(f"{target} goes through a link or a file of the image") from None
        if not is_folder and not stat.S_ISREG(seen.st_mode):
            raise StageError(f"{target} is a link or a folder of the image") from None

    def open_file(self, path: str) -> int | None:
        """Open a regular file of the world for reading, following no link; None if there is none.

        Call it only after every process of the world is dead.
        """
        here = None
        try:
            here, name = self._parent(path)
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            if not stat.S_ISREG(os.stat(name, dir_fd=here, follow_symlinks=False).st_mode):
                return None
            return os.open(name, flags, dir_fd=here)
        except OSError:
            return None
        finally:
            if here is not None:
                os.close(here)

    def open_folder(self, path: str) -> int | None:
        """Open a folder of the world, following no link; None if there is none."""
        where, parts, _ = self._locate(path)
        try:
            here = os.open(where, _FOLDER)
            for part in parts:
                below = os.open(part, _FOLDER, dir_fd=here)
                os.close(here)
                here = below
            return os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=here)
        except OSError:
            return None

    def _parent(self, path: str) -> tuple[int, str]:
        where, parts, _ = self._locate(path)
        if not parts:
            return os.open(os.path.dirname(where), _FOLDER), os.path.basename(where)
        here = os.open(where, _FOLDER)
        for part in parts[:-1]:
            below = os.open(part, _FOLDER, dir_fd=here)
            os.close(here)
            here = below
        return here, parts[-1]

    def _locate(self, path: str) -> tuple[str, list[str], bool]:
        path = posixpath.normpath(path)
        if not path.startswith("/"):
            raise StageError(f"{path} is not absolute")
        path = "/" + path.lstrip("/")
        for target, where, writable in self._places:
            if path == target:
                return where, [], writable
            if target == "/" or path.startswith(target + "/"):
                rest = path[len(target) :].strip("/")
                return where, rest.split("/"), writable
        raise StageError(f"{path} lies nowhere")

    def _fresh(self, kind: str) -> str:
        self._count += 1
        with contextlib.suppress(FileExistsError):
            os.mkdir(f"{STAGE}/{kind}")
        return f"{STAGE}/{kind}/{self._count}"
