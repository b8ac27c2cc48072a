"""From a staged world to a running command: bubblewrap's arguments and its start."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterable
from typing import Any, NamedTuple, NoReturn

from qualityhub.engine.sandbox.launcher.cgroups import Group

# What root inside an ordinary container may do too; all of it ends at the world's own user
# namespace. Without these, images that switch users or own files by several ids do not work.
CAPABILITIES = (
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_NET_BIND_SERVICE",
)
_OWN_PIDS = 3
# Counted for the host user that all worlds share.
_PENDING_SIGNALS = 4096


class Files(NamedTuple):
    """Open files of a command that is about to start: streams, arguments, what bubblewrap reads."""

    stdin: int
    stdout: int
    stderr: int
    arguments: int
    others: tuple[int, ...]


def arguments(
    request: dict[str, Any],
    root: str,
    binds: list[tuple[str, str]],
    shared_memory: str,
    capabilities: tuple[str, ...] = CAPABILITIES,
) -> bytes:
    """Return bubblewrap's arguments but for its open files, packed.

    Args:
        request: As sent by the asking process.
        root: Where ``/`` of the world lies.
        binds: ``(where, target)``, outer targets first.
        shared_memory: Where ``/dev/shm`` lies; it counts against the disk limit.
        capabilities: Kept inside.
    """
    words: list[str] = ["--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try"]
    if not request["network"]:
        words.append("--unshare-net")
    words += ["--die-with-parent", "--new-session", "--hostname", request["hostname"]]
    if request["first"]:
        words.append("--as-pid-1")
    words += ["--cap-drop", "ALL"]
    for name in capabilities:
        words += ["--cap-add", name]
    words += ["--bind", root, "/"]
    for where, target in binds:
        words += ["--bind", where, target]
    words += ["--proc", "/proc", "--dev", "/dev", "--bind", shared_memory, "/dev/shm"]  # noqa: S108
    words += ["--remount-ro", "/dev", "--chdir", request["cwd"], "--clearenv"]
    for name, value in request["env"]:
        words += ["--setenv", name, value]
    return packed(words)


def packed(words: Iterable[str]) -> bytes:
    """Return words as bubblewrap reads them, each ended by a NUL."""
    return b"".join(os.fsencode(word) + b"\0" for word in words)


def become_bubblewrap(
    program: str, request: dict[str, Any], group: Group | None, files: Files
) -> NoReturn:
    """Turn this freshly forked process into bubblewrap; never returns."""
    try:
        if group is not None:
            group.enter()
        for target, source in enumerate((files.stdin, files.stdout, files.stderr)):
            os.dup2(source, target)
        _close_others((files.arguments, *files.others))
        _limit(request["limits"], group)
        os.umask(request["umask"])
        _few_cpus(request["cpus"])
        for number in (signal.SIGPIPE, signal.SIGINT, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.execve(program, ["bwrap", "--args", str(files.arguments), "--", *request["argv"]], {})  # noqa: S606
    except BaseException as error:  # noqa: BLE001 - a forked child must not run its parent's code
        os.write(2, f"cannot start bubblewrap: {error}".encode())
    os._exit(125)


def _close_others(kept: tuple[int, ...]) -> None:
    first = 3
    for file in sorted(kept):
        os.set_inheritable(file, True)
        os.closerange(first, file)
        first = file + 1
    os.closerange(first, 1 << 20)


def _limit(limits: dict[str, Any], group: Group | None) -> None:
    by_kernel = group.limited if group is not None else set()
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_CPU, limits["cpu_s"], limits["cpu_s"] + 1)
    _lower(resource.RLIMIT_NOFILE, limits["open_files"])
    _lower(resource.RLIMIT_SIGPENDING, _PENDING_SIGNALS)
    if "pids" not in by_kernel:
        _lower(resource.RLIMIT_NPROC, limits["pids"] + _OWN_PIDS)
    if "memory" not in by_kernel:
        _lower(resource.RLIMIT_DATA, limits["memory_bytes"])


def _few_cpus(count: int) -> None:
    """Leave this process some of our CPUs, others than its neighbours where there are enough."""
    ours = sorted(os.sched_getaffinity(0))
    if 0 < count < len(ours):
        first = os.getpid() % len(ours)
        os.sched_setaffinity(0, (ours + ours)[first : first + count])


def _lower(kind: int, soft: int, hard: int | None = None) -> None:
    """Lower a limit; what is already lower stays."""
    _, most = resource.getrlimit(kind)
    wanted = soft if hard is None else hard
    if most not in (resource.RLIM_INFINITY, -1):
        wanted = min(wanted, most)
    resource.setrlimit(kind, (min(soft, wanted), wanted))
