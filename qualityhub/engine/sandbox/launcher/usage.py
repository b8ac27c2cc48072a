"""What a tree of processes holds in memory, by looking: where the kernel does not count for us.

Seen are pages in address spaces, files in memory that belong to no file system, and shared memory
of System V, attached or not. Buffers of pipes and sockets are not seen.
"""

from __future__ import annotations

import contextlib
import os
import resource

from qualityhub.engine.sandbox.launcher import kernel

_MEMORY_FILES = ("/memfd:", "/dev/zero")


def _space(pid: int | str) -> int:
    try:
        return os.stat(f"/proc/{pid}/ns/ipc").st_ino
    except OSError:
        return 0


# As long as this is the launcher: what the host shares is not a world's.
_HOST_SPACE = _space("self")


def children(pid: int) -> list[int]:
    """Return the direct children of a process, all its threads together."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", encoding="ascii") as file:
                found += [int(text) for text in file.read().split()]
    return found


def tree_bytes(pid: int) -> int:
    """Return the memory of a process and everything below it, shared pages counted once.

    The calling process may be moved to the tree's namespace for shared memory and stays there.
    """
    own = shared = 0
    files: dict[tuple[int, int], int] = {}
    spaces: dict[int, int] = {}
    waiting = [pid]
    while waiting:
        here = waiting.pop()
        waiting += children(here)
        pages, of_shared = _mapped(here)
        own += pages - of_shared
        shared += of_shared
        files.update(_memory_files(here))
        spaces[_space(here)] = here
    hidden = sum(files.values()) + sum(
        kernel.shared_memory_bytes(some)
        for space, some in spaces.items()
        if space not in {0, _HOST_SPACE}
    )
    # What is mapped and has an open file or a segment shows on both sides.
    return own + max(shared, hidden)


def _mapped(pid: int) -> tuple[int, int]:
    """Return proportional bytes of a process, and how many of them are shared memory."""
    sizes = {}
    for line in _lines(f"/proc/{pid}/smaps_rollup"):
        name, _, rest = line.partition(":")
        if name in {"Pss", "Pss_Shmem"}:
            sizes[name] = int(rest.split()[0]) * 1024
    if "Pss" in sizes:
        return sizes["Pss"], sizes.get("Pss_Shmem", 0)
    # Without the right to look closer: resident pages, shared ones counted each time.
    for line in _lines(f"/proc/{pid}/statm"):
        return int(line.split()[1]) * resource.getpagesize(), 0
    return 0, 0


def _memory_files(pid: int) -> dict[tuple[int, int], int]:
    found = {}
    folder = f"/proc/{pid}/fd"
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            with contextlib.suppress(OSError):
                if os.readlink(f"{folder}/{name}").startswith(_MEMORY_FILES):
                    seen = os.stat(f"{folder}/{name}")
                    found[seen.st_dev, seen.st_ino] = seen.st_blocks * 512
    return found


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="ascii") as file:
            return file.readlines()
    except OSError:
        return []
