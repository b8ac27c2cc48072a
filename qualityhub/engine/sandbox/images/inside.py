"""Look into the tree of an image as if it were ``/``: no link leads to the host."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

_MOST_LINKS = 40
_LARGEST_TABLE = 4 * 1024 * 1024


def is_program(tree: Path, path: str) -> bool:
    """Whether a path of an image is an executable file; links are resolved inside the image."""
    found = resolve_inside(tree, path)
    if found is None:
        return False
    mode = found.lstat().st_mode
    return stat.S_ISREG(mode) and bool(mode & 0o111)


def resolve_inside(tree: Path, path: str) -> Path | None:
    """Return where a path of an image really lies, as if the tree were ``/``; None for nowhere."""
    waiting = list(PurePosixPath(path).parts[1:])
    here: list[str] = []
    links = 0
    while waiting:
        part = waiting.pop(0)
        if part == "..":
            here = here[:-1]
            continue
        place = tree.joinpath(*here, part)
        try:
            mode = place.lstat().st_mode
        except OSError:
            return None
        if not stat.S_ISLNK(mode):
            here.append(part)
            continue
        links += 1
        if links > _MOST_LINKS:
            return None
        target = PurePosixPath(place.readlink())
        if target.is_absolute():
            here = []
        waiting = [item for item in target.parts if item != "/"] + waiting
    return tree.joinpath(*here)


@dataclass(frozen=True, slots=True)
class ImageUser:
    """Whom an image's USER stands for.

    Attributes:
        uid: User id.
        gid: Group id.
        groups: Further groups.
        home: Home folder, ``/`` for a user that the image does not know.
        name: Empty for a user that the image does not know.
    """

    uid: int = 0
    gid: int = 0
    groups: tuple[int, ...] = ()
    home: str = "/root"
    name: str = "root"


def user_of(tree: Path, text: str) -> ImageUser | None:
    """Return the user that a USER instruction means, by the image's own tables.

    Args:
        tree: Of the image.
        text: ``name``, ``uid``, ``name:group`` or ``uid:gid``; empty means root.

    Returns:
        None for a name that the image does not know: an engine starts no container of it either.
    """
    named, _, group = text.partition(":")
    named = named or "0"
    users = _table(tree, "/etc/passwd", 6)
    groups = _table(tree, "/etc/group", 4)
    row = next((row for row in users if row[0] == named), None)
    if row is None and named.isdigit():
        row = next((row for row in users if row[2] == named), None)
    if row is None and not named.isdigit():
        return None
    uid, gid, home, name = (
        (int(row[2]), int(row[3]), row[5] or "/", row[0])
        if row is not None
        else (int(named), 0, "/", "")
    )
    more: tuple[int, ...] = ()
    if group:
        found = next((line for line in groups if line[0] == group), None)
        if found is None and not group.isdigit():
            return None
        gid = int(found[2]) if found is not None else int(group)
    elif name:
        more = tuple(
            sorted({int(line[2]) for line in groups if name in line[3].split(",")} - {gid})
        )
    return ImageUser(uid, gid, more, home, name)


def _table(tree: Path, path: str, fields: int) -> list[list[str]]:
    """Return the rows of a table such as ``/etc/passwd`` whose ids are numbers."""
    place = resolve_inside(tree, path)
    if place is None:
        return []
    try:
        file = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(file, "rb") as stream:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                return []
            text = stream.read(_LARGEST_TABLE).decode("utf-8", "replace")
    except OSError:
        return []
    rows = [line.split(":") for line in text.splitlines()]
    numbers = (2, 3) if fields > 4 else (2,)
    return [
        row
        for row in rows
        if len(row) >= fields and all(row[n].isascii() and row[n].isdigit() for n in numbers)
    ]
