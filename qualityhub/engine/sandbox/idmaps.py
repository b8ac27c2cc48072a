"""Which user ids a world gets: never the host's user 0, and a whole range where we may."""

from __future__ import annotations

import functools
import getpass
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

RANGE = 65_536
# Tried in this order when we are root; the second is for roots of containers with few ids.
_ROOT_RANGES = ((300_000, RANGE), (10_000, 50_000))


@dataclass(frozen=True, slots=True)
class IdMaps:
    """The maps that every world of this process gets.

    Attributes:
        uid: Rows of ``uid_map``: inside, outside, count.
        gid: Rows of ``gid_map``.
        tools: ``newuidmap`` and ``newgidmap`` by ``uid`` and ``gid``, where they write the maps.
        id_base: Host id that is 0 inside when we are root; 0 otherwise.
        ranged: Whether a whole range is mapped.
    """

    uid: tuple[tuple[int, int, int], ...]
    gid: tuple[tuple[int, int, int], ...]
    tools: dict[str, str]
    id_base: int
    ranged: bool

    @property
    def keeps_owners(self) -> bool:
        """Whether stored trees keep the owners that an image gave their files."""
        return bool(self.id_base)

    @property
    def owner(self) -> int:
        """Host id that stored trees belong to, -1 for our own."""
        return self.id_base or -1


@functools.cache
def current() -> IdMaps:
    """Return the maps for this process."""
    if os.geteuid() == 0:
        for first, count in _ROOT_RANGES:
            if _is_mapped("/proc/self/uid_map", first, count) and _is_mapped(
                "/proc/self/gid_map", first, count
            ):
                rows = ((0, first, count),)
                return IdMaps(rows, rows, {}, first, ranged=True)
    tools = {kind: shutil.which(f"new{kind}map") or "" for kind in ("uid", "gid")}
    name = _user_name()
    subuid = _subordinate(Path("/etc/subuid"), name, os.getuid())
    subgid = _subordinate(Path("/etc/subgid"), name, os.getuid())
    if all(tools.values()) and subuid is not None and subgid is not None:
        return IdMaps(
            ((0, os.getuid(), 1), (1, subuid, RANGE - 1)),
            ((0, os.getgid(), 1), (1, subgid, RANGE - 1)),
            tools,
            0,
            ranged=True,
        )
    return IdMaps(((0, os.getuid(), 1),), ((0, os.getgid(), 1),), {}, 0, ranged=False)


def size_of(owner: int) -> int:
    """Return how many ids the range has that begins at a host id."""
    return next((count for first, count in _ROOT_RANGES if first == owner), RANGE)


def _user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def _is_mapped(table: str, first: int, count: int) -> bool:
    try:
        rows = Path(table).read_text(encoding="ascii").splitlines()
    except OSError:
        return False
    for row in rows:
        inside, _, size = (int(text) for text in row.split())
        if inside <= first and first + count <= inside + size:
            return True
    return False


def _subordinate(table: Path, name: str, uid: int) -> int | None:
    try:
        rows = table.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    for row in rows:
        parts = row.split(":")
        if (
            len(parts) == 3
            and parts[0] in {name, str(uid)}
            and parts[1].isdigit()
            and parts[2].strip().isdigit()
            and int(parts[2]) >= RANGE - 1
        ):
            return int(parts[1])
    return None
