"""What a keeper does before anything starts: leave root, open sources, put a world together."""

from __future__ import annotations

import os
import socket
from typing import Any

from qualityhub.engine.sandbox.launcher import kernel, wire
from qualityhub.engine.sandbox.launcher.cgroups import Hierarchy
from qualityhub.engine.sandbox.launcher.stage import STAGE, Source, Stage, StageError

# All worlds have the same host user, who may have 128: none takes what its neighbours need.
_WATCHERS = 32


class Host:
    """What the launcher knows about this host; the same for every command.

    Attributes:
        is_root: Whether we run as the host's user 0 and map a range of our choice.
        id_base: First id of that range; 0 otherwise.
        userns: A user namespace with the same map, for owner translation; -1 where there is none.
        hierarchies: Where control groups can be made.
        bwrap: Host path of bubblewrap.
        libraries: Host folder of the libraries that travel with it, or empty.
        seccomp: The packed filter.
        building: The packed filter of what makes worlds itself, for a fork server.
    """

    __slots__ = (
        "building",
        "bwrap",
        "hierarchies",
        "id_base",
        "is_root",
        "libraries",
        "seccomp",
        "userns",
    )

    def __init__(
        self,
        *,
        is_root: bool,
        id_base: int,
        userns: int,
        hierarchies: list[Hierarchy],
        bwrap: str,
        libraries: str,
        seccomp: bytes,
        building: bytes,
    ) -> None:
        self.is_root = is_root
        self.id_base = id_base
        self.userns = userns
        self.hierarchies = hierarchies
        self.bwrap = bwrap
        self.libraries = libraries
        self.seccomp = seccomp
        self.building = building


def ask_for_map(mapper: socket.socket) -> None:
    """Have the launcher write this process's id maps, then be user 0 of its namespace."""
    mapper.sendall(b"m")
    if mapper.recv(1) != b"y":
        raise StageError("this host does not let us map user ids")
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
    kernel.bound_watches(_WATCHERS)


def leave_root(mapper: socket.socket, id_base: int) -> None:
    """Give up the host's user 0 for a user namespace of the mapped range."""
    os.setgroups([])
    os.setresgid(id_base, id_base, id_base)
    os.setresuid(id_base, id_base, id_base)
    kernel.set_dumpable()
    kernel.die_with_parent(os.getppid())
    kernel.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWNS)
    ask_for_map(mapper)


def open_sources(request: dict[str, Any], host: Host) -> dict[str, Source]:
    """Open everything that is mounted, by its number in the request; ``base`` is the image."""
    sources: dict[str, Source] = {}
    if request["base"]:
        sources["base"] = Source(request["base"], host.id_base)
    for number, mount in enumerate(request["mounts"]):
        if mount["source"]:
            sources[str(number)] = Source(mount["source"], host.id_base)
    return sources


def open_bubblewrap(host: Host) -> dict[str, Source]:
    """Open the program's folder, and that of its library: the stage may cover where they lie."""
    folders = {"b/package/_bin": os.path.dirname(host.bwrap)}
    if host.libraries:
        # Its library is found relative to the program, two folders up.
        folders["b/" + os.path.basename(host.libraries)] = host.libraries
    return {target: Source(folder, host.id_base) for target, folder in folders.items()}


def bring_bubblewrap(stage: Stage, host: Host, folders: dict[str, Source]) -> str:
    """Return a path of bubblewrap that an unprivileged id can reach."""
    for target, source in folders.items():
        place = f"{STAGE}/{target}"
        os.makedirs(place)
        stage.bring_at(source, place, -1, read_only=True)
    return f"{STAGE}/b/package/_bin/{os.path.basename(host.bwrap)}"


def build(
    stage: Stage,
    request: dict[str, Any],
    sources: dict[str, Source],
    brought: dict[str, str],
) -> tuple[str, list[tuple[str, str]]]:
    """Put a world together on the stage; return its root and what is bound into it."""
    root = stage.overlay(brought["base"]) if "base" in brought else stage.scratch()
    stage.place("/", root, writable=True)
    for folder, mode in request["folders"]:
        stage.ensure(folder, is_folder=True, mode=mode)
    for target, link in request["links"]:
        os.symlink(link, root + target)
    binds: list[tuple[str, str]] = []
    for number, mount in sorted(
        enumerate(request["mounts"]), key=lambda row: row[1]["target"].count("/")
    ):
        source = sources.get(str(number))
        is_folder = source is None or source.is_folder
        try:
            stage.ensure(mount["target"], is_folder=is_folder)
        except StageError:
            if mount["optional"]:
                continue
            raise
        writable = mount["mode"] != "ro"
        if source is None:
            where = stage.scratch(mount["permissions"])
        elif not writable:
            where = brought[str(number)]
        elif source.is_folder:
            where = stage.overlay(brought[str(number)])
        else:
            where = _copy_file(stage, brought[str(number)])
        stage.place(mount["target"], where, writable=writable)
        binds.append((where, mount["target"]))
    stage.ensure(request["cwd"], is_folder=True)
    return root, binds


def _copy_file(stage: Stage, source: str) -> str:
    place = stage.scratch() + "/file"
    with open(source, "rb") as origin, open(place, "wb") as copy:
        while piece := origin.read(wire.PIECE):
            copy.write(piece)
    os.chmod(place, os.stat(source).st_mode & 0o777)
    return place


def memory_file(name: str, content: bytes) -> int:
    """Return an open file without a name that holds the content."""
    file = os.memfd_create(name)
    while content:
        content = content[os.write(file, content) :]
    os.lseek(file, 0, os.SEEK_SET)
    return file
