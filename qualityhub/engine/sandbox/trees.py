"""Write foreign trees to disk: from a tar stream, or by removing one. Trusts nothing in them."""

from __future__ import annotations

import contextlib
import os
import shutil
import tarfile
from pathlib import Path
from typing import IO

from qualityhub.engine.errors import MachineryError
from qualityhub.engine.sandbox.tarstream import entries, parts_of
from qualityhub.engine.sandbox.treewriter import TreeWriter, Unpacked

MAX_ENTRIES = 2_000_000
MAX_BYTES = 64 * 1024**3


def unpack_stream(
    stream: IO[bytes], target: Path, owner: int, *, strip: str = "", pipes: bool = False
) -> Unpacked:
    """Write a tar stream below a new folder.

    No entry is written through a link, outside the folder or with set-id bits; devices, sockets
    and, unless they are wanted, pipes are left out.

    Args:
        stream: Uncompressed tar.
        target: Folder that does not exist yet.
        owner: First host id of the mapped range, added to the ids in the archive; negative leaves
            everything to us.
        strip: Leading folder of the archive to leave out, e.g. ``app``.
        pipes: Whether named pipes are made.

    Raises:
        MachineryError: The archive is broken, too large or not safe to unpack.
    """
    writer = TreeWriter(target, owner, most_entries=MAX_ENTRIES, most_bytes=MAX_BYTES, pipes=pipes)
    try:
        for entry, content in entries(stream):
            parts = parts_of(entry.name)
            if strip:
                if parts[:1] != [strip]:
                    continue
                parts = parts[1:]
                if entry.islnk():
                    entry.linkname = "/".join(parts_of(entry.linkname)[1:])
            writer.add(entry, parts, content)
        return writer.finish()
    except (tarfile.TarError, OSError, ValueError) as error:
        raise MachineryError("tree.unpack", f"an archive could not be unpacked: {error}") from error
    finally:
        writer.close()


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


def size_of(path: Path) -> int:
    """Return the bytes that a tree takes on disk; what is linked twice counts once."""
    total = 0
    seen: set[int] = set()
    waiting = [path]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as items:
                for item in items:
                    info = item.stat(follow_symlinks=False)
                    if info.st_nlink > 1 and not item.is_dir(follow_symlinks=False):
                        if info.st_ino in seen:
                            continue
                        seen.add(info.st_ino)
                    total += info.st_blocks * 512
                    if item.is_dir(follow_symlinks=False):
                        waiting.append(Path(item.path))
        except OSError:
            continue
    return total
