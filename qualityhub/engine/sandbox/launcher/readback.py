"""Read back what was asked for, once every process of the world is dead."""

from __future__ import annotations

import os
import socket
import stat
import tarfile
from typing import Any

from qualityhub.engine.sandbox.launcher import wire
from qualityhub.engine.sandbox.launcher.stage import Stage
from qualityhub.engine.sandbox.launcher.watch import Watch

PIECE = 1024 * 1024
_DEEPEST = 128


def collect(stage: Stage, paths: list[str], cap: int) -> list[tuple[str, bytes]]:
    """Return the content of those paths that are regular files, each cut at ``cap`` bytes."""
    found = []
    for path in paths:
        file = stage.open_file(path)
        if file is None:
            continue
        try:
            found.append((path, _read(file, cap)))
        finally:
            os.close(file)
    return found


def answer(
    channel: socket.socket, watch: Watch, files: list[tuple[str, bytes]], **values: Any
) -> None:
    """Send what one command did: what was watched, what was collected, and plain values."""
    wire.send(
        channel,
        {
            **values,
            "timed_out": watch.timed_out,
            "stdout": len(watch.stdout),
            "stderr": len(watch.stderr),
            "dropped_bytes": watch.dropped,
            "collected": [[path, len(content)] for path, content in files],
        },
        watch.stdout,
        watch.stderr,
        *(content for _, content in files),
    )


def _read(file: int, cap: int) -> bytes:
    parts: list[bytes] = []
    while cap > 0:
        part = os.read(file, min(cap, PIECE))
        if not part:
            break
        parts.append(part)
        cap -= len(part)
    return b"".join(parts)


def unkeepable(folder: int, most_bytes: int) -> str:
    """Return why a folder is not copied out of its world; empty where it can be.

    Holes and hard links take no room in the world, but would outside of it.
    """
    total = 0
    for here, _, files, place in os.fwalk(".", dir_fd=folder, follow_symlinks=False):
        if here.count("/") > _DEEPEST:
            return f"folders are nested more than {_DEEPEST} deep"
        for name in files:
            seen = os.stat(name, dir_fd=place, follow_symlinks=False)
            if stat.S_ISREG(seen.st_mode):
                total += seen.st_size
        if total > most_bytes:
            return f"its files are larger than the disk limit of {most_bytes} bytes"
    return ""


def stream_folder(folder: int, channel: socket.socket) -> None:
    """Write a folder as a tar stream: files, folders and links; owners as the world saw them."""
    with (
        channel.makefile("wb") as sink,
        tarfile.open(fileobj=sink, mode="w|", format=tarfile.PAX_FORMAT) as archive,
    ):
        for here, folders, files, place in os.fwalk(
            ".", dir_fd=folder, follow_symlinks=False, topdown=True
        ):
            for name in sorted((*folders, *files)):
                _add(archive, os.path.normpath(os.path.join(here, name)), name, place)


def _add(archive: tarfile.TarFile, path: str, name: str, place: int) -> None:
    seen = os.stat(name, dir_fd=place, follow_symlinks=False)
    entry = tarfile.TarInfo(path)
    entry.mode = stat.S_IMODE(seen.st_mode)
    entry.uid, entry.gid, entry.mtime = seen.st_uid, seen.st_gid, int(seen.st_mtime)
    if stat.S_ISDIR(seen.st_mode):
        entry.type = tarfile.DIRTYPE
        archive.addfile(entry)
    elif stat.S_ISLNK(seen.st_mode):
        entry.type = tarfile.SYMTYPE
        entry.linkname = os.readlink(name, dir_fd=place)
        archive.addfile(entry)
    elif stat.S_ISREG(seen.st_mode):
        entry.size = seen.st_size
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place)
        with os.fdopen(file, "rb") as content:
            archive.addfile(entry, content)
