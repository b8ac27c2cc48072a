"""Where an archive unpacks to: every name, size and link is checked before it is made."""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING

from qualityhub.engine.environments.files import shown, size_text
from qualityhub.engine.errors import InvalidInputError

if TYPE_CHECKING:
    from qualityhub.engine.environments.archives import ArchiveLimits

_CHUNK = 256 * 1024
_NAME_BYTES = 255
_PATH_BYTES = 4096
_DEPTH = 64


class Target:
    """A fresh folder that an archive's entries are put into.

    Links are made at the end, so that nothing is ever written through one.

    Args:
        root: Empty folder.
        limits: How much is unpacked.
        packed_bytes: Size of the archive.
    """

    def __init__(self, root: Path, limits: ArchiveLimits, packed_bytes: int) -> None:
        self._root = root
        self._limits = limits
        self._packed = max(packed_bytes, 1)
        self._bytes = 0
        self._entries = 0
        self._kinds: dict[str, str] = {}
        self._folded: dict[str, str] = {}
        self._links: list[tuple[str, str]] = []

    def add_folder(self, name: str) -> None:
        """Make a folder; the same folder twice is harmless."""
        path = _checked_name(name, folder=True)
        if path:
            self._folder(path)

    def add_file(self, name: str, source: IO[bytes], size: int, mode: int) -> None:
        """Write one file.

        Raises:
            InvalidInputError: ``archive.*``.
        """
        path = self._claim(name, "file")
        if size > self._limits.file_bytes:
            raise self._file_too_large(path)
        with self._create(path, mode) as copy:
            written = 0
            while chunk := source.read(_CHUNK):
                written += len(chunk)
                if written > self._limits.file_bytes:
                    raise self._file_too_large(path)
                self._count(len(chunk))
                copy.write(chunk)
        if written != size:
            raise refuse("broken", f"{shown(path)} ends too early.", "Make the archive again.")

    def add_copy(self, name: str, original: str) -> None:
        """Write a hard link as a copy of a file that came before it."""
        first = _checked_name(original)
        if self._kinds.get(first) != "file":
            raise refuse(
                "link_escape",
                f"{shown(name)} is a link to {shown(original)}, which is no file here.",
            )
        place = self._root / first
        with place.open("rb") as source:
            self.add_file(name, source, place.stat().st_size, place.stat().st_mode)

    def add_link(self, name: str, target: str) -> None:
        """Note a symbolic link.

        Raises:
            InvalidInputError: ``archive.link_escape``: it is absolute, or leaves the tree.
        """
        path = self._claim(name, "link")
        _check_text(target)
        if target.startswith("/") or not target or len(os.fsencode(target)) > _PATH_BYTES:
            raise _escape(path)
        self._links.append((path, target))

    def finish(self) -> None:
        """Make the links and check where they lead.

        Raises:
            InvalidInputError: ``archive.link_escape`` or ``archive.empty``.
        """
        if not any(kind != "folder" for kind in self._kinds.values()):
            raise refuse("empty", "The archive holds no file.", "Pack the environment's files.")
        for path, target in self._links:
            (self._root / path).symlink_to(target)
        top = os.path.realpath(self._root)
        for path, _ in self._links:
            place = os.path.realpath(self._root / path)
            if place != top and not place.startswith(top + "/"):
                raise _escape(path)

    def _claim(self, name: str, kind: str) -> str:
        path = _checked_name(name)
        parent = str(PurePosixPath(path).parent)
        if parent != ".":
            self._folder(parent)
        if path in self._kinds:
            raise refuse(
                "duplicate_name", f"The archive holds {shown(path)} twice.", "Make it again."
            )
        self._note(path, kind)
        return path

    def _folder(self, path: str) -> None:
        known = self._kinds.get(path)
        if known == "folder":
            return
        if known is not None:
            raise refuse(
                "duplicate_name", f"{shown(path)} is a folder and a {known} in the archive."
            )
        parent = str(PurePosixPath(path).parent)
        if parent != ".":
            self._folder(parent)
        self._note(path, "folder")
        (self._root / path).mkdir(mode=0o755)

    def _note(self, path: str, kind: str) -> None:
        self._entries += 1
        if self._entries > self._limits.entries:
            raise refuse(
                "too_large", f"The archive has more than {self._limits.entries:,} entries."
            )
        folded = unicodedata.normalize("NFC", path).casefold()
        first = self._folded.setdefault(folded, path)
        if first != path:
            raise refuse(
                "case_collision",
                f"{shown(first)} and {shown(path)} are one name on some systems.",
                "Rename one of them.",
            )
        self._kinds[path] = kind

    def _create(self, path: str, mode: int) -> IO[bytes]:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(self._root / path, flags, 0o644)
        os.fchmod(handle, 0o644 | (mode & 0o111))
        return os.fdopen(handle, "wb")

    def _count(self, size: int) -> None:
        self._bytes += size
        if self._bytes > self._limits.total_bytes:
            raise refuse(
                "too_large",
                f"The archive unpacks to more than {size_text(self._limits.total_bytes)}.",
            )
        if (
            self._bytes > self._limits.ratio_from
            and self._bytes > self._limits.ratio * self._packed
        ):
            raise refuse(
                "bomb",
                f"The archive unpacks to more than {self._limits.ratio} times its size.",
                "Leave out files that are mostly padding.",
            )

    def _file_too_large(self, path: str) -> InvalidInputError:
        return refuse(
            "too_large", f"{shown(path)} is larger than {size_text(self._limits.file_bytes)}."
        )


def refuse(code: str, message: str, hint: str = "") -> InvalidInputError:
    """Return the error for an archive that is not taken."""
    return InvalidInputError(f"archive.{code}", message, hint)


def _checked_name(name: str, *, folder: bool = False) -> str:
    """Return a relative path without ``.``; empty for the root, which only a folder may be."""
    _check_text(name)
    if name.startswith("/") or "\\" in name or (len(name) > 1 and name[1] == ":"):
        raise refuse(
            "absolute_path",
            f"The archive holds an absolute path: {shown(name)}.",
            "Pack paths relative to the environment's folder, with forward slashes.",
        )
    parts = [part for part in name.split("/") if part not in {"", "."}]
    if ".." in parts:
        raise refuse(
            "path_escape",
            f"The archive holds a path that leaves its folder: {shown(name)}.",
            "Pack paths relative to the environment's folder.",
        )
    if (
        len(parts) > _DEPTH
        or len(os.fsencode(name)) > _PATH_BYTES
        or any(len(os.fsencode(part)) > _NAME_BYTES for part in parts)
    ):
        raise refuse("bad_name", f"The name {shown(name)} is too long or too deep.")
    if not parts and not folder:
        raise refuse("bad_name", "The archive holds a file without a name.")
    return "/".join(parts)


def _check_text(name: str) -> None:
    if "\0" in name:
        raise refuse("bad_name", f"The name {shown(name)} holds a NUL character.")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise refuse(
            "bad_name", f"The name {shown(ascii(name))} is not UTF-8.", "Use UTF-8 names."
        ) from error


def _escape(path: str) -> InvalidInputError:
    return refuse(
        "link_escape",
        f"The link {shown(path)} leads out of the archive.",
        "Pack the file it points to, or make it relative and inside the tree.",
    )
