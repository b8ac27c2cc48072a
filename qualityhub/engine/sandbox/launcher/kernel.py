"""System calls that Python 3.11 does not offer, through ctypes."""

from __future__ import annotations

import ctypes
import errno
import os

CLONE_NEWNS = 0x00020000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
MS_NOSUID = 2
MS_NODEV = 4
MS_REC = 0x4000
MS_PRIVATE = 1 << 18
ATTR_RDONLY = 0x1
ATTR_NOSUID = 0x2
ATTR_NODEV = 0x4
ATTR_IDMAP = 0x00100000

_SHM_INFO = 14
_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
# These numbers are the same on x86_64 and aarch64.
_SYS_OPEN_TREE = 428
_SYS_MOVE_MOUNT = 429
_SYS_MOUNT_SETATTR = 442
_OPEN_TREE_CLONE = 1
_AT_EMPTY_PATH = 0x1000
_AT_RECURSIVE = 0x8000
_AT_FDCWD = -100
_MOVE_MOUNT_F_EMPTY_PATH = 4

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


class _MountAttr(ctypes.Structure):
    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


class _SharedMemory(ctypes.Structure):
    _fields_ = (
        ("used_ids", ctypes.c_int),
        ("total", ctypes.c_ulong),
        ("resident", ctypes.c_ulong),
        ("swapped", ctypes.c_ulong),
        ("attempts", ctypes.c_ulong),
        ("successes", ctypes.c_ulong),
    )


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return int(result)


def unshare(flags: int) -> None:
    """Leave the namespaces in ``flags`` for new ones."""
    _check(_libc.unshare(ctypes.c_int(flags)), "unshare")


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """Mount a file system."""
    done = _libc.mount(
        os.fsencode(source),
        os.fsencode(target),
        kind.encode(),
        ctypes.c_ulong(flags),
        os.fsencode(options),
    )
    _check(done, f"mount {kind or source} at {target}")


def die_with_parent(parent: int) -> None:
    """Have the kernel end this process when its parent ends.

    Args:
        parent: The parent's id as known before the fork; if it is already gone, end now.
    """
    _libc.prctl(_PR_SET_PDEATHSIG, 9, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def become_subreaper() -> None:
    """Inherit every orphan below this process."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def set_dumpable() -> None:
    """Let ``/proc/self`` belong to this process again after its ids changed."""
    _libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)


def bound_watches(most: int) -> None:
    """Bound the inotify instances of the calling process's user namespace."""
    try:
        file = os.open("/proc/sys/user/max_inotify_instances", os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        # Kernels that do not count by namespace.
        return
    try:
        os.write(file, str(most).encode())
    finally:
        os.close(file)


def shared_memory_bytes(pid: int) -> int:
    """Return what System V segments hold in a process's namespace; 0 where it cannot be asked.

    The calling process moves to that namespace: it may not be allowed to go back.
    """
    try:
        space = os.open(f"/proc/{pid}/ns/ipc", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        if _libc.setns(space, CLONE_NEWIPC) < 0:
            return 0
    finally:
        os.close(space)
    seen = _SharedMemory()
    if _libc.shmctl(0, _SHM_INFO, ctypes.byref(seen)) < 0:
        return 0
    return int(seen.resident + seen.swapped) * os.sysconf("SC_PAGESIZE")


def clone_tree(source: int) -> int:
    """Return a detached copy of the mount below an open path.

    Without its submounts where that is allowed; the kernel refuses to uncover what an outer
    namespace mounted there, and then they come along.
    """
    flags = _OPEN_TREE_CLONE | _AT_EMPTY_PATH | os.O_CLOEXEC
    for extra in (0, _AT_RECURSIVE):
        result = _libc.syscall(
            ctypes.c_long(_SYS_OPEN_TREE), ctypes.c_int(source), b"", ctypes.c_uint(flags | extra)
        )
        if result >= 0 or ctypes.get_errno() != errno.EINVAL:
            break
    return _check(result, "open_tree")


def set_attributes(tree: int, attributes: int, userns: int = -1) -> None:
    """Set mount attributes on a detached tree and everything below it."""
    wanted = _MountAttr(attr_set=attributes)
    if userns >= 0:
        wanted.attr_set |= ATTR_IDMAP
        wanted.userns_fd = userns
    result = _libc.syscall(
        ctypes.c_long(_SYS_MOUNT_SETATTR),
        ctypes.c_int(tree),
        b"",
        ctypes.c_uint(_AT_EMPTY_PATH | _AT_RECURSIVE),
        ctypes.byref(wanted),
        ctypes.c_size_t(ctypes.sizeof(wanted)),
    )
    _check(result, "mount_setattr")


def attach(tree: int, target: str) -> None:
    """Attach a detached tree at a path."""
    result = _libc.syscall(
        ctypes.c_long(_SYS_MOVE_MOUNT),
        ctypes.c_int(tree),
        b"",
        ctypes.c_int(_AT_FDCWD),
        os.fsencode(target),
        ctypes.c_uint(_MOVE_MOUNT_F_EMPTY_PATH),
    )
    _check(result, f"move_mount to {target}")
