"""Lay out the files that a rehearsed Dockerfile copies, and say how a world mounts them."""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import stat
from pathlib import Path

from qualityhub.engine.digest import digest_json
from qualityhub.engine.sandbox import base, idmaps, store
from qualityhub.engine.sandbox.buildcontext import ContextError
from qualityhub.engine.sandbox.dockerfile import Rehearsal
from qualityhub.engine.sandbox.port import Mount

KIND = "rehearsed"


def prepare_files(rehearsal: Rehearsal, context: Path, home: Path) -> tuple[Path, str]:
    """Return a folder laid out like the image's root, and its digest.

    Args:
        rehearsal: From :func:`read_dockerfile`, without errors.
        context: Folder that its copies come from.
        home: Our data folder.

    Raises:
        ContextError: A copy goes through a link, or its source cannot be read.
    """
    with store.fresh(home, KIND) as place:
        place.mkdir(parents=True, mode=0o755)
        for made in rehearsal.folders:
            _inside(place, made).mkdir(parents=True, exist_ok=True)
        for copied in rehearsal.copies:
            _copy(context / copied.source, _inside(place, copied.target), copied.mode)
        for target, bits in rehearsal.modes:
            path = _inside(place, target)
            if not path.is_symlink():
                path.chmod(bits if bits is not None else path.stat().st_mode | 0o111)
        digest = digest_json("rehearsed-files", _rows(place))
        with store.locked(home, KIND, digest):
            found = store.lookup(home, KIND, digest)
            if found is not None:
                return found[0], digest
            _give(place)
            return store.publish(home, KIND, digest, place, {}), digest


@functools.lru_cache(maxsize=256)
def mounts(files: Path) -> tuple[Mount, ...]:
    """Return the mounts that lay such a folder over the rehearsal base.

    A folder that the base does not have is one copy-on-write mount; what goes into a folder of the
    base is mounted piece by piece.
    """
    known = {path for path, _ in base.FOLDERS}
    found: list[Mount] = []

    def walk(folder: Path, target: str) -> None:
        for entry in sorted(folder.iterdir()):
            path = f"{target}/{entry.name}"
            if entry.is_symlink():
                continue
            if entry.is_dir() and path in known:
                walk(entry, path)
            else:
                found.append(Mount(path, entry, "overlay"))

    walk(files, "")
    return tuple(found)


def _inside(place: Path, target: str) -> Path:
    """Return where an absolute path of the image lies below a folder; never outside it.

    Raises:
        ContextError: A folder on the way is a link that was copied before; following it would
            leave the image.
    """
    path = Path(os.path.normpath(f"{place}/{target.lstrip('/')}"))
    if not path.is_relative_to(place):
        raise ContextError(f"{target} leaves the image")
    for parent in path.parents:
        if parent == place:
            break
        if parent.is_symlink():
            raise ContextError(f"{target} goes through a link that was copied")
    return path


def _copy(source: Path, target: Path, mode: int | None) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_symlink() or target.is_file():
        target.unlink()
    if source.is_symlink():
        target.symlink_to(source.readlink())
        return
    try:
        file = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise ContextError(f"{source.name} cannot be read: {error.strerror}") from error
    with os.fdopen(file, "rb") as content, target.open("wb") as copy:
        shutil.copyfileobj(content, copy)
        seen = os.fstat(content.fileno())
    target.chmod(mode if mode is not None else 0o755 if seen.st_mode & 0o111 else 0o644)


def _rows(place: Path) -> list[list[str | int]]:
    rows: list[list[str | int]] = []
    for here, folders, files in os.walk(place):
        folders.sort()
        for name in sorted((*files, *folders)):
            path = Path(here) / name
            seen = path.lstat()
            relative = str(path.relative_to(place))
            if stat.S_ISLNK(seen.st_mode):
                rows.append([relative, "link", 0, str(path.readlink())])
            elif stat.S_ISDIR(seen.st_mode):
                rows.append([relative, "folder", 0, ""])
            else:
                with path.open("rb") as file:
                    content = hashlib.file_digest(file, "sha256").hexdigest()
                rows.append([relative, "file", seen.st_mode & 0o777, content])
    return sorted(rows)


def _give(place: Path) -> None:
    owner = idmaps.current().owner
    if owner < 0:
        return
    for here, folders, files in os.walk(place):
        for name in (*folders, *files):
            os.chown(Path(here) / name, owner, owner, follow_symlinks=False)
    os.chown(place, owner, owner)
