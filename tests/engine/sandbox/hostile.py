"""The hostile programs of ``tests/data/hostile``: limits, how each may end, and what stops it."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from qualityhub.engine.sandbox.port import MIB, Command, Completed, Limits, Mount

PROGRAMS = Path(__file__).resolve().parents[2] / "data/hostile"
WHERE = "/hostile"
MARK = "QH_HOSTILE"
ANY = "any"
"""For a program that may say itself how it ended, as every program may."""
GRACE_S = 8.0
"""Seconds beyond the wall-clock limit in which a world must be gone, on a loaded host."""

# In the environment of whoever starts a sandbox, and nowhere inside.
WORDS = secrets.token_hex(16)
os.environ["QH_HOSTILE_WORDS"] = WORDS

SMALL = Limits(
    wall_s=1.0,
    cpu_s=30,
    memory_bytes=96 * MIB,
    pids=64,
    disk_bytes=16 * MIB,
    files=2000,
    open_files=256,
    output_bytes=64 * 1024,
    collect_bytes=4096,
)
LONGER = replace(SMALL, wall_s=10.0)

Check = Callable[[Completed], str]


@dataclass(frozen=True, slots=True)
class Case:
    """One hostile program.

    Attributes:
        name: Unique; stands in THREAT_MODEL.md.
        file: Program in :data:`PROGRAMS`.
        stops: What stands in its way.
        ends: Allowed outcomes, in the words of :func:`outcome`.
        args: Arguments; names in braces are filled with the :class:`Bait`'s.
        soft: Further outcomes where the kernel does not enforce memory or processes for us.
        soft_reaches: What it may then reach.
        limits: What it may use.
        collect: Paths read back.
        collected: Exactly what must come back; None where it does not matter.
        check: What else must hold; returns a sentence or nothing.
        stdin: What it is fed.
    """

    name: str
    file: str
    stops: str
    ends: tuple[str, ...]
    args: tuple[str, ...] = ()
    soft: tuple[str, ...] = ()
    soft_reaches: tuple[str, ...] = ()
    limits: Limits = LONGER
    collect: tuple[str, ...] = ()
    collected: dict[str, bytes] | None = None
    check: Check | None = None
    stdin: bytes = b""


def outcome(seen: Completed) -> str:
    """Return the end of a command in two words at most."""
    if seen.exit_code is not None and not 0 <= seen.exit_code <= 255:
        return f"impossible status {seen.exit_code}"
    if seen.out_of_memory:
        return "memory"
    if seen.timed_out:
        return "timeout"
    if seen.signal is not None:
        return f"signal {seen.signal}"
    return f"exit {seen.exit_code}"


def problems(case: Case, seen: Completed, *, hard: bool) -> list[str]:
    """Return sentences about what did not hold for one result."""
    found = []
    ended = outcome(seen)
    allowed = case.ends if hard else case.ends + case.soft
    if ended not in allowed and (ANY not in allowed or ended.startswith("impossible")):
        found.append(f"ended with {ended}, not {' or '.join(allowed)}: {seen.stderr[-600:]!r}")
    if seen.wall_s > case.limits.wall_s + GRACE_S:
        found.append(f"took {seen.wall_s:.1f} s")
    if max(len(seen.stdout), len(seen.stderr)) > case.limits.output_bytes:
        found.append("more output was kept than allowed")
    if any(len(content) > case.limits.collect_bytes for content in seen.collected.values()):
        found.append("more of a collected file was kept than allowed")
    if case.collected is not None and dict(seen.collected) != case.collected:
        found.append(f"collected {dict(seen.collected)!r}")
    if ended == "exit 0" and seen.stdout.startswith(b"{"):
        known = () if hard else case.soft_reaches
        reached = [item for item in json.loads(seen.stdout)["reached"] if item not in known]
        if reached:
            found.append(f"reached: {', '.join(reached)}")
    if case.check is not None and (problem := case.check(seen)):
        found.append(problem)
    return found


def _dropped(least: int) -> Check:
    return lambda seen: (
        "" if seen.dropped_bytes >= least else f"only {seen.dropped_bytes} bytes were counted"
    )


def _says(name: str, *values: object) -> Check:
    def check(seen: Completed) -> str:
        try:
            said = json.loads(seen.stdout)[name]
        except (ValueError, KeyError):
            return f"it did not say {name}: {seen.stdout[:200]!r}"
        return "" if said in values else f"{name} was {said!r}"

    return check


def _raw(seen: Completed) -> str:
    if b"\x1b]0;owned\x07" in seen.stdout and seen.stdout == seen.stderr:
        return ""
    return "the bytes did not come back as they were"


_BELOW = (
    *("/logs/link", "/logs/proc", "/logs/climb", "/logs/loop", "/logs/folder/secret"),
    *("/logs/hard", "/logs/hardusr", "/logs/fifo", "/logs/socket", "/logs/device"),
    *("/logs/block", "/logs/directory", "/logs/plain", "/logs/shut"),
)

CASES: tuple[Case, ...] = (
    Case("fork bomb", "fork_bomb.py", "process limit, wall clock", ("timeout",), limits=SMALL),
    Case(
        "fork bomb of a shell",
        "fork_bomb.sh",
        "process limit, whole-tree kill",
        ("exit 7", "exit 2"),
    ),
    Case(
        "two thousand hidden children",
        "fork_and_hide.py",
        "process limit, whole-tree kill",
        ("exit 5",),
    ),
    Case(
        "no process left for the supervisor",
        "starve_supervisor.py",
        "the supervisor lives outside the limited group and forks nothing at the end",
        ("exit 4",),
        collect=("/logs/done",),
        collected={"/logs/done": b"still read back"},
    ),
    Case(
        "memory bomb",
        "memory_heap.py",
        "memory limit",
        ("memory",),
        soft=("exit 1",),
    ),
    Case(
        "memory bomb of many small processes",
        "memory_many.py",
        "memory limit of the tree",
        ("memory",),
        limits=SMALL,
    ),
    Case("memory through tmpfs", "memory_tmpfs.py", "size of the tmpfs", ("exit 0",)),
    Case("memory through memfd", "memory_memfd.py", "memory limit", ("memory",)),
    Case(
        "memory through detached shared memory",
        "memory_sysv.py",
        "memory limit",
        ("memory",),
    ),
    Case(
        "memory through pipes and sockets",
        "memory_pipes.py",
        "memory limit, open files, the kernel's cap on pipes per user",
        ("exit 0", "memory"),
        soft_reaches=("half a gigabyte of kernel buffers",),
    ),
    Case(
        "disk fill with one file",
        "disk_one_file.py",
        "size of the tmpfs",
        ("exit 0",),
        check=_says("why", "ENOSPC"),
    ),
    Case(
        "disk fill with many files",
        "disk_many_files.py",
        "inodes of the tmpfs",
        ("exit 0",),
        check=_says("why", "ENOSPC"),
    ),
    Case(
        "sparse file of a terabyte",
        "disk_sparse.py",
        "cap on collected bytes",
        ("exit 0",),
        collect=("/logs/sparse", "/tmp/sparse"),
        collected={"/logs/sparse": bytes(4096), "/tmp/sparse": bytes(4096)},
    ),
    Case(
        "ten million files",
        "ten_million_files.py",
        "inodes of the tmpfs, wall clock",
        ("timeout",),
        limits=replace(SMALL, files=50_000, disk_bytes=64 * MIB),
        soft=("memory",),
    ),
    Case(
        "flood of stdout",
        "flood.py",
        "cap on output, wall clock",
        ("timeout",),
        args=("1",),
        check=_dropped(10 * MIB),
        limits=SMALL,
    ),
    Case(
        "flood of stderr",
        "flood.py",
        "cap on output, wall clock",
        ("timeout",),
        args=("2",),
        check=_dropped(10 * MIB),
        limits=SMALL,
    ),
    Case(
        "flood of both streams",
        "flood.py",
        "cap on output, wall clock",
        ("timeout",),
        args=("12",),
        check=_dropped(10 * MIB),
        limits=SMALL,
    ),
    Case(
        "output like a decompression bomb",
        "flood_packed.py",
        "cap on output; it is never unpacked",
        ("exit 0",),
        check=_dropped(190 * MIB),
    ),
    Case(
        "links, pipes and devices where files are collected",
        "collect_tricks.py",
        "only regular files are read back, through no link, after every process is dead",
        ("exit 0",),
        collect=_BELOW,
        collected={"/logs/plain": b"plain", "/logs/shut": b"shut"},
    ),
    Case(
        "pokes at /proc and /sys",
        "proc_pokes.py",
        "namespaces, host user 0 is not mapped, no /sys",
        ("exit 0",),
        args=("{words}", "{file}"),
    ),
    Case(
        "ptrace and memory of its parents",
        "ptrace_parent.py",
        "process id namespace; the first process in it holds nothing of ours",
        ("exit 0",),
        args=("{words}",),
    ),
    Case("mounts, namespaces and roots", "mounts.py", "system call filter", ("exit 0",)),
    Case("key rings", "keyring.py", "system call filter", ("exit 0",), args=("{mark}",)),
    Case(
        "signals to everybody",
        "signals.py",
        "process id namespace",
        ("exit 0", "signal 9"),
        args=("{pids}",),
    ),
    Case("stuck in vfork", "stuck_vfork.py", "wall clock, SIGKILL", ("timeout",), limits=SMALL),
    Case("stopped for good", "stuck_stopped.py", "wall clock, SIGKILL", ("timeout",), limits=SMALL),
    Case(
        "deaf busy threads", "stuck_threads.py", "wall clock, SIGKILL", ("timeout",), limits=SMALL
    ),
    Case(
        "busy sessions",
        "stuck_sessions.py",
        "a CPU group of its own for every trial, wall clock",
        ("timeout",),
        limits=SMALL,
    ),
    Case(
        "stuck in a tracing stop",
        "stuck_traced.py",
        "wall clock, SIGKILL",
        ("timeout",),
        limits=SMALL,
    ),
    Case("stuck in full pipes", "stuck_pipe.py", "wall clock, SIGKILL", ("timeout",), limits=SMALL),
    Case("clock setting", "clocks.py", "system call filter, no capability", ("exit 0",)),
    Case(
        "daemon that keeps its streams",
        "daemon_lives_on.py",
        "whole-tree kill, then collecting",
        ("exit 3",),
        args=("open",),
    ),
    Case(
        "daemon that closed its streams",
        "daemon_lives_on.py",
        "whole-tree kill, then collecting",
        ("exit 3",),
        args=("closed",),
    ),
    Case(
        "terminal escapes and markup",
        "escapes.py",
        "bytes are kept as they are; whoever shows them makes them visible",
        ("exit 1",),
        check=_raw,
    ),
    Case("doors into the kernel", "kernel_doors.py", "system call filter", ("exit 0",)),
    Case(
        "program in no file system",
        "memfd_exec.py",
        "no new privileges",
        ("exit 0",),
    ),
    Case(
        "inherited open files",
        "inherited_files.py",
        "everything but three streams is closed before it starts",
        ("exit 0",),
    ),
    Case(
        "sockets of the host",
        "host_sockets.py",
        "network and mount namespaces, system call filter",
        ("exit 0",),
        args=("{abstract}", "{named}"),
    ),
    Case(
        "loopback, metadata and names of the host",
        "network.py",
        "network namespace with a loopback of its own",
        ("exit 0",),
        args=("{port}",),
        check=_says("interfaces", ["lo"], []),
    ),
    Case("raising its limits", "raise_limits.py", "hard limits, no capability", ("exit 0",)),
    Case(
        "set-user-id programs",
        "setuid_files.py",
        "nosuid mounts, no new privileges",
        ("exit 0",),
    ),
    Case("writing to what is ours", "write_ours.py", "read-only mounts", ("exit 0",)),
    Case("huge arguments and environment", "huge_words.py", "the kernel's caps", ("exit 0",)),
    Case(
        "folders deeper than a path",
        "deep_folders.py",
        "inodes of the tmpfs; nothing of ours walks there",
        ("exit 0",),
        limits=replace(LONGER, files=30_000),
        collect=("/logs/d/d/d/end", "/logs/end"),
        collected={},
    ),
    Case(
        "names that are no text",
        "odd_names.py",
        "paths are asked for by name, never listed",
        ("exit 0",),
        collect=("/logs/a\nb", "/logs/-rf", "/logs/none"),
        collected={"/logs/a\nb": b"", "/logs/-rf": b""},
    ),
    Case(
        "forged reports",
        "forge_report.py",
        "the status pipe is open in no process it can reach; a status has eight bits",
        (ANY,),
        check=_says("reached", []),
    ),
    Case(
        "terminals",
        "terminals.py",
        "no terminal of ours, a devpts of its own, open files",
        ("exit 0",),
    ),
    Case(
        "what the kernel counts per user",
        "kernel_objects.py",
        "open files, pending signals, caps of the user namespace",
        ("exit 0",),
        check=_says("inotify", *range(33)),
    ),
    Case("open files of all processes", "open_files.py", "open files", ("exit 0",)),
    Case(
        "input that nobody reads",
        "stdin_ignored.py",
        "feeding stops with the tree",
        ("exit 2",),
        stdin=b"x" * (8 * MIB),
    ),
)


@dataclass(frozen=True, slots=True)
class Bait:
    """Things of the host that a program is told of and must not reach."""

    words: str
    file: str
    port: str
    abstract: str
    named: str
    mark: str
    pids: tuple[str, ...]

    def arguments(self, case: Case) -> tuple[str, ...]:
        """Return the arguments of a case."""
        filled: list[str] = []
        for word in case.args:
            if word == "{pids}":
                filled += self.pids
            else:
                filled.append(word.format(**{n: getattr(self, n) for n in self.__slots__}))
        return tuple(filled)


@contextlib.contextmanager
def bait(folder: Path, mark: str, *pids: int) -> Iterator[Bait]:
    """Lay out what must not be reached: listeners, a readable file, process ids.

    Args:
        folder: On the host; anyone may enter.
        mark: Found in every process of the programs, and in no other.
        pids: Processes of the host.
    """
    place = folder / f"host-{mark}"
    place.write_text("a file of the host")
    place.chmod(0o644)
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.socket(socket.AF_UNIX) as abstract,
        socket.socket(socket.AF_UNIX) as named,
    ):
        abstract.bind(f"\0qh-{mark}")
        abstract.listen()
        path = str(folder / f"s{mark[:8]}")
        named.bind(path)
        named.listen()
        Path(path).chmod(0o777)
        yield Bait(
            # In hex: the program's own words must not be what it finds.
            words=WORDS.encode().hex(),
            file=str(place),
            port=str(server.getsockname()[1]),
            abstract=f"qh-{mark}",
            named=path,
            mark=mark,
            pids=tuple(str(pid) for pid in pids),
        )
    Path(path).unlink()
    place.unlink()


_THROUGH = (
    "import runpy, sys; sys.path.insert(0, sys.argv[1]); del sys.argv[:2]; "
    "sys.argv[0] = sys.path[0] + '/' + sys.argv[0]; runpy.run_path(sys.argv[0], None, '__main__')"
)


def command(
    case: Case, python: str, laid: Bait, ours: tuple[Mount, ...] = (), *, mark: str = ""
) -> Command:
    """Return what runs one case in a world of its own.

    Args:
        case: What to run.
        python: Path of an interpreter inside the world.
        laid: Fills its arguments.
        ours: Read-only folders that stand for what a trial mounts.
        mark: In the environment; the bait's own where it is left out.
    """
    start = ("/bin/sh",) if case.file.endswith(".sh") else (python, "-B", "-S")
    return _command(
        case, (*start, f"{WHERE}/{case.file}", *laid.arguments(case)), mark or laid.mark, ours
    )


def served(
    case: Case, python: str, laid: Bait, ours: tuple[Mount, ...] = (), *, mark: str = ""
) -> Command:
    """Return the same for a fork server that runs them all: code, not files, is what may differ."""
    words = ("-c", _THROUGH, WHERE, case.file, *laid.arguments(case))
    return _command(case, (python, "-B", "-S", *words), mark or laid.mark, ours)


def _command(case: Case, argv: tuple[str, ...], mark: str, ours: tuple[Mount, ...]) -> Command:
    return Command(
        argv=argv,
        env={"PATH": "/usr/local/bin:/usr/bin:/bin", MARK: mark},
        mounts=(Mount(WHERE, PROGRAMS), Mount("/logs", None, "scratch"), *ours),
        limits=case.limits,
        collect=case.collect,
        stdin=case.stdin,
    )
