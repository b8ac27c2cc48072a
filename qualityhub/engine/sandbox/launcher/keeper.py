"""One forked process per command: it builds the world, outlives its processes and reads it back."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import socket
import time
from typing import Any, NamedTuple, NoReturn

from qualityhub.engine.sandbox.launcher import kernel, wire
from qualityhub.engine.sandbox.launcher.assemble import (
    Files,
    arguments,
    become_bubblewrap,
    packed,
)
from qualityhub.engine.sandbox.launcher.cgroups import Group, Hierarchy
from qualityhub.engine.sandbox.launcher.readback import collect, stream_folder
from qualityhub.engine.sandbox.launcher.stage import STAGE, Source, Stage, StageError
from qualityhub.engine.sandbox.launcher.watch import Watch


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
    """

    __slots__ = ("bwrap", "hierarchies", "id_base", "is_root", "libraries", "seccomp", "userns")

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
    ) -> None:
        self.is_root = is_root
        self.id_base = id_base
        self.userns = userns
        self.hierarchies = hierarchies
        self.bwrap = bwrap
        self.libraries = libraries
        self.seccomp = seccomp


class Start(NamedTuple):
    """What is started: bubblewrap's path, its packed arguments, the command's input."""

    program: str
    arguments: bytes
    data: bytes


class Ended(NamedTuple):
    """How it ended: what was watched, wait status, bubblewrap's report, seconds."""

    watch: Watch
    status: int
    report: bytes
    wall_s: float


def serve(channel: socket.socket, mapper: socket.socket, host: Host, name: str) -> NoReturn:
    """Run one command and answer on ``channel``; never returns.

    Args:
        channel: Connection to the asking process.
        mapper: Connection to the launcher, which writes this process's id maps.
        host: What is known about this host.
        name: Name of the control groups.
    """
    code = 0
    try:
        _serve(channel, mapper, host, name)
    except (BrokenPipeError, ConnectionResetError, EOFError):
        code = 1
    except BaseException as error:  # noqa: BLE001 - reported to the asking process, never raised here
        code = 1
        text = str(error) if isinstance(error, (StageError, OSError)) else repr(error)
        with contextlib.suppress(OSError):
            wire.send(channel, {"error": text, "where": type(error).__name__})
    os._exit(code)


def _serve(channel: socket.socket, mapper: socket.socket, host: Host, name: str) -> None:
    kernel.become_subreaper()
    request = wire.receive(channel)
    data = wire.read_exactly(channel, request["stdin"])
    limits = request["limits"]
    if host.is_root:
        kernel.unshare(kernel.CLONE_NEWNS)
    else:
        kernel.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWNS)
        _ask_for_map(mapper)
    kernel.mount("none", "/", "", kernel.MS_REC | kernel.MS_PRIVATE)
    sources = _open_sources(request, host)
    bubblewrap = _open_bubblewrap(host)
    group = None
    if host.hierarchies:
        group = Group(
            host.hierarchies,
            name,
            memory_bytes=limits["memory_bytes"] + limits["disk_bytes"],
            pids=limits["pids"],
        )
    stage = Stage(limits["disk_bytes"], limits["files"], host.id_base)
    stage.mount()
    program = _bring_bubblewrap(stage, host, bubblewrap)
    brought = {
        key: stage.bring(source, host.userns, read_only=key != "base")
        for key, source in sources.items()
    }
    if host.is_root:
        _leave_root(mapper, host.id_base)
    root, binds = _build(stage, request, sources, brought)
    args = arguments(request, root, binds, stage.scratch(0o1777))
    ended = _run(channel, host, request, group, Start(program, args, data))
    _answer(channel, stage, request, group, ended)


def _ask_for_map(mapper: socket.socket) -> None:
    mapper.sendall(b"m")
    if mapper.recv(1) != b"y":
        raise StageError("this host does not let us map user ids")
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
    kernel.bound_watches(_WATCHERS)


def _leave_root(mapper: socket.socket, id_base: int) -> None:
    os.setgroups([])
    os.setresgid(id_base, id_base, id_base)
    os.setresuid(id_base, id_base, id_base)
    kernel.set_dumpable()
    kernel.die_with_parent(os.getppid())
    kernel.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWNS)
    _ask_for_map(mapper)


def _open_sources(request: dict[str, Any], host: Host) -> dict[str, Source]:
    sources: dict[str, Source] = {}
    if request["base"]:
        sources["base"] = Source(request["base"], host.id_base)
    for number, mount in enumerate(request["mounts"]):
        if mount["source"]:
            sources[str(number)] = Source(mount["source"], host.id_base)
    return sources


def _open_bubblewrap(host: Host) -> dict[str, Source]:
    """Open the program's folder, and that of its library: the stage may cover where they lie."""
    folders = {"b/package/_bin": os.path.dirname(host.bwrap)}
    if host.libraries:
        # Its library is found relative to the program, two folders up.
        folders["b/" + os.path.basename(host.libraries)] = host.libraries
    return {target: Source(folder, host.id_base) for target, folder in folders.items()}


def _bring_bubblewrap(stage: Stage, host: Host, folders: dict[str, Source]) -> str:
    """Return a path of bubblewrap that an unprivileged id can reach."""
    for target, source in folders.items():
        place = f"{STAGE}/{target}"
        os.makedirs(place)
        stage.bring_at(source, place, -1, read_only=True)
    return f"{STAGE}/b/package/_bin/{os.path.basename(host.bwrap)}"


def _build(
    stage: Stage,
    request: dict[str, Any],
    sources: dict[str, Source],
    brought: dict[str, str],
) -> tuple[str, list[tuple[str, str]]]:
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


def _run(
    channel: socket.socket, host: Host, request: dict[str, Any], group: Group | None, start: Start
) -> Ended:
    limits = request["limits"]
    stdin, feed = os.pipe()
    out, stdout = os.pipe()
    err, stderr = os.pipe()
    report, status_file = os.pipe()
    seccomp = _memory_file("filter", host.seccomp)
    options = ("--seccomp", str(seccomp), "--json-status-fd", str(status_file))
    args = _memory_file("arguments", start.arguments + packed(options))
    started = time.monotonic()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        kernel.die_with_parent(parent)
        files = Files(stdin, stdout, stderr, args, (seccomp, status_file))
        become_bubblewrap(start.program, request, group, files)
    for file in (stdin, stdout, stderr, status_file, seccomp, args):
        os.close(file)
    watch = Watch(
        pid,
        stdin=feed,
        stdout=out,
        stderr=err,
        channel=channel.fileno(),
        output_bytes=limits["output_bytes"],
    )
    sampled = limits["memory_bytes"]
    if group is not None and "memory" in group.limited:
        sampled = 0
    status = watch.until_dead(memoryview(start.data), started + limits["wall_s"], sampled)
    wall_s = time.monotonic() - started
    return Ended(watch, status, os.read(report, 65536), wall_s)


def _memory_file(name: str, content: bytes) -> int:
    file = os.memfd_create(name)
    while content:
        content = content[os.write(file, content) :]
    os.lseek(file, 0, os.SEEK_SET)
    return file


def _answer(
    channel: socket.socket,
    stage: Stage,
    request: dict[str, Any],
    group: Group | None,
    ended: Ended,
) -> None:
    watch = ended.watch
    if watch.abandoned:
        raise EOFError("the asking process is gone")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = used.ru_utime + used.ru_stime
    peak = max(watch.peak_bytes, used.ru_maxrss * 1024)
    out_of_memory = watch.over_memory
    if group is not None:
        cpu_s = max(cpu_s, group.cpu_s() or 0.0)
        peak = group.peak_bytes() or peak
        out_of_memory = out_of_memory or group.out_of_memory()
    code = _exit_code(ended.report, watch.stderr)
    if code is None and not (watch.timed_out or out_of_memory):
        text = watch.stderr.decode(errors="replace").strip()
        how = f"wait status {ended.status}"
        raise StageError(f"bubblewrap could not build the world: {text or how}")
    files = collect(stage, request["collect"], request["limits"]["collect_bytes"])
    kept = None
    if request["keep_from"] and code == 0:
        kept = stage.open_folder(request["keep_from"])
    wire.send(
        channel,
        {
            "exit_code": code,
            "timed_out": watch.timed_out,
            "out_of_memory": out_of_memory,
            "stdout": len(watch.stdout),
            "stderr": len(watch.stderr),
            "dropped_bytes": watch.dropped,
            "collected": [[path, len(content)] for path, content in files],
            "wall_s": ended.wall_s,
            "cpu_s": cpu_s,
            "peak_memory_bytes": peak,
            "kept": kept is not None,
        },
        watch.stdout,
        watch.stderr,
        *(content for _, content in files),
    )
    if kept is not None:
        stream_folder(kept, channel)


def _exit_code(report: bytes, stderr: bytes) -> int | None:
    """Return what bubblewrap reported; None where the command was never started or was killed."""
    for line in report.decode(errors="replace").splitlines():
        with contextlib.suppress(ValueError):
            seen = json.loads(line)
            if isinstance(seen, dict) and isinstance(seen.get("exit-code"), int):
                # The world's first process can be made to say anything; a status has eight bits.
                return int(seen["exit-code"]) & 0xFF
    # Without a report nothing of the command ran, so this sentence is bubblewrap's own.
    if stderr.startswith(b"bwrap: execvp "):
        return 127 if stderr.rstrip().endswith(b"No such file or directory") else 126
    return None


def reset_signals() -> None:
    """Forget the launcher's handlers in a freshly forked keeper."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
