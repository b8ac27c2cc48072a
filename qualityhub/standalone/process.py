"""Start, watch and end the processes of this machine's installation.

Linux first: a child asks the kernel to be signalled when its parent goes away, so that a killed
supervisor leaves nothing behind. The request is tied to the *thread* that started the child:
children are started from a thread that lives as long as they should.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def dies_with_parent(sig: signal.Signals) -> Callable[[], None]:
    """Return a hook for the child, between fork and exec, that ties it to this process.

    Args:
        sig: What the child receives when its parent is gone.
    """
    parent = os.getpid()

    def hook() -> None:
        # Runs after the change of user: changing it would clear the request.
        if _LIBC is not None:
            _LIBC.prctl(_PR_SET_PDEATHSIG, int(sig), 0, 0, 0)
            if os.getppid() != parent:
                os._exit(1)

    return hook


def spawn(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path,
    stdout: int | IO[bytes],
    death_signal: signal.Signals = signal.SIGTERM,
    uid: int | None = None,
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start one child in its own process group, tied to this process.

    Args:
        argv: Program and arguments.
        env: Its whole environment.
        cwd: Working folder.
        stdout: Where both of its output streams go.
        death_signal: What it receives when this process is gone.
        uid: User and group id to become, when this process may choose.
        pass_fds: Descriptors it inherits; no others.
    """
    return subprocess.Popen(
        list(argv),
        env=dict(env),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.STDOUT,
        process_group=0,
        user=uid,
        group=uid,
        extra_groups=None if uid is None else [],
        pass_fds=pass_fds,
        preexec_fn=dies_with_parent(death_signal),  # noqa: PLW1509 - one prctl, prepared before the fork.
    )


def start_time(pid: int) -> str | None:
    """Return the kernel's start time of a process, or ``None`` if it does not run.

    Together with the pid it names a process for good; pids are used again, soon so in containers.
    """
    if sys.platform == "linux":
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
        fields = stat.rpartition(")")[2].split()
        return None if fields[0] in {"Z", "X"} else fields[19]
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        return "unknown"
    return "unknown"


def is_running(pid: int, started: str | None = None) -> bool:
    """Say whether this very process runs.

    Args:
        pid: Process id.
        started: Its start time as `start_time` gave it; ``None`` accepts any.
    """
    now = start_time(pid)
    return now is not None and (started is None or now == started)


def signal_group(pid: int, sig: signal.Signals) -> None:
    """Send a signal to a child's whole process group; a group already gone is no error."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, sig)


def wait_gone(pid: int, started: str | None, timeout: float) -> bool:
    """Wait until a process that is not our child is gone.

    Args:
        pid: Process id.
        started: Its start time, or ``None`` for any.
        timeout: Seconds to wait at most.

    Returns:
        Whether it is gone.
    """
    deadline = time.monotonic() + timeout
    while is_running(pid, started):
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.05)
    return True


def tail(path: Path, lines: int) -> list[str]:
    """Return the last lines of a text file, at most 64 KiB of it; none if it is not there."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 65536))
            text = file.read().decode("utf-8", errors="replace")
    except OSError:
        return []
    return text.splitlines()[-lines:]
