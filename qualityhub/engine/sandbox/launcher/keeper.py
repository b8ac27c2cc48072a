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
from qualityhub.engine.sandbox.launcher.building import (
    Host,
    ask_for_map,
    bring_bubblewrap,
    build,
    leave_root,
    memory_file,
    open_bubblewrap,
    open_sources,
)
from qualityhub.engine.sandbox.launcher.cgroups import Group
from qualityhub.engine.sandbox.launcher.readback import (
    answer,
    collect,
    stream_folder,
    unkeepable,
)
from qualityhub.engine.sandbox.launcher.server import serve_many
from qualityhub.engine.sandbox.launcher.stage import Stage, StageError
from qualityhub.engine.sandbox.launcher.watch import Watch


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
    if "serve" in request:
        serve_many(channel, mapper, host, name, request)
        return
    data = wire.read_exactly(channel, request["stdin"])
    limits = request["limits"]
    if host.is_root:
        kernel.unshare(kernel.CLONE_NEWNS)
    else:
        kernel.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWNS)
        ask_for_map(mapper)
    kernel.mount("none", "/", "", kernel.MS_REC | kernel.MS_PRIVATE)
    sources = open_sources(request, host)
    bubblewrap = open_bubblewrap(host)
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
    program = bring_bubblewrap(stage, host, bubblewrap)
    brought = {
        key: stage.bring(source, host.userns, read_only=key != "base")
        for key, source in sources.items()
    }
    if host.is_root:
        leave_root(mapper, host.id_base)
    root, binds = build(stage, request, sources, brought)
    args = arguments(request, root, binds, stage.scratch(0o1777))
    ended = _run(channel, host, request, group, Start(program, args, data))
    _answer(channel, stage, request, group, ended)


def _run(
    channel: socket.socket, host: Host, request: dict[str, Any], group: Group | None, start: Start
) -> Ended:
    limits = request["limits"]
    stdin, feed = os.pipe()
    out, stdout = os.pipe()
    err, stderr = os.pipe()
    report, status_file = os.pipe()
    seccomp = memory_file("filter", host.seccomp)
    options = ("--seccomp", str(seccomp), "--json-status-fd", str(status_file))
    args = memory_file("arguments", start.arguments + packed(options))
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
        if kept is not None and (why := unkeepable(kept, request["limits"]["disk_bytes"])):
            watch.complain(f"{request['keep_from']} cannot be kept: {why}")
            code, kept = 1, None
    answer(
        channel,
        watch,
        files,
        exit_code=code,
        out_of_memory=out_of_memory,
        wall_s=ended.wall_s,
        cpu_s=cpu_s,
        peak_memory_bytes=peak,
        kept=kept is not None,
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
