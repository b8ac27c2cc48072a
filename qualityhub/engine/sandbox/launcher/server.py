"""The keeper of a fork server: one bubblewrap and its first program, one fresh world per trial.

That program (``inside/zygote.py``) holds no capability. It asks here, outside of its world, for
what a trial needs: id maps, a control group, its end. A trial is seen dead through its process
descriptor: its first process is the init of its process ids, so the kernel reports its end only
after everything in it has ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import time
from typing import Any, NamedTuple

from qualityhub.engine.sandbox.launcher import heard, kernel, wire
from qualityhub.engine.sandbox.launcher.assemble import Files, arguments, become_bubblewrap, packed
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
from qualityhub.engine.sandbox.launcher.readback import answer, collect
from qualityhub.engine.sandbox.launcher.stage import Source, Stage, StageError
from qualityhub.engine.sandbox.launcher.watch import Watch

TRIALS = "-t"
"""Ends the name of the control groups that trials are in, beside the server's own."""
HIDDEN = "/.qh"
PROGRAM = f"{HIDDEN}/zygote.py"
_ZYGOTE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "inside", "zygote.py")
_ANSWER_S = 20.0
_MESSAGE = 1 << 18
# Its own processes and those between a fork and the next.
_SERVER_PIDS = 64
_NEVER_S = 10**9


class Place(NamedTuple):
    """Where a source of mounts lies in the server's world."""

    path: str
    is_folder: bool


class Served(Watch):
    """A trial under way, known by its process descriptor.

    Attributes:
        death: Readable once the whole trial is dead.
    """

    def __init__(self, pid: int, death: int, **files: int) -> None:
        """Take over a started trial; see :class:`Watch`."""
        super().__init__(pid, **files)
        self.death = death

    def open_death(self) -> int:
        """Return a descriptor of the trial: it may be over, and its number another's, by now."""
        return os.dup(self.death)

    def end(self) -> int:
        """End the trial where it still lives.

        Raises:
            StageError: It does not die.
        """
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.death, signal.SIGKILL)
        if not select.select([self.death], [], [], _ANSWER_S)[0]:
            raise StageError("a trial does not end")
        return 0


class Server:
    """One fork server: what its trials have in common."""

    def __init__(self, host: Host, channel: socket.socket, request: dict[str, Any]) -> None:
        self._host = host
        self._channel = channel
        self._request = request
        self._own: Group | None = None
        self._trials: Group | None = None
        self._maps = {kind: _identity(f"/proc/self/{kind}_map") for kind in ("uid", "gid")}
        self._link = self._inner = socket.socket()

    def limit(self, name: str) -> None:
        """Make the control groups, as long as we may."""
        limits = self._request["limits"]
        if not self._host.hierarchies:
            return
        memory = limits["memory_bytes"] + limits["disk_bytes"]
        self._own = Group(
            self._host.hierarchies, name, memory_bytes=memory, pids=limits["pids"] + _SERVER_PIDS
        )
        self._trials = Group(
            self._host.hierarchies, name + TRIALS, memory_bytes=memory, pids=limits["pids"]
        )

    def start(
        self, program: str, words: bytes, places: dict[int, Place], permitted: list[str]
    ) -> None:
        """Start bubblewrap with the zygote and wait until that is ready.

        Args:
            program: Path of bubblewrap.
            words: Its packed arguments.
            places: Where the sources of mounts lie inside, by number.
            permitted: Folders that modules may be imported from.

        Raises:
            StageError: It could not start, or what it imported cannot be shared.
        """
        request, wanted = self._request, self._request["serve"]
        self._maps = {kind: _identity(f"/proc/self/{kind}_map") for kind in ("uid", "gid")}
        self._link, inner = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        stdin, feed = os.pipe()
        out, stdout = os.pipe()
        err, stderr = os.pipe()
        seccomp = memory_file("filter", self._host.building)
        args = memory_file("arguments", words + packed(("--seccomp", str(seccomp))))
        first = {
            **request,
            "argv": [*wanted["python"], PROGRAM, str(inner.fileno())],
            "limits": {
                **request["limits"],
                "cpu_s": _NEVER_S,
                "open_files": 4096,
                "pids": request["limits"]["pids"] + _SERVER_PIDS,
            },
        }
        parent = os.getpid()
        if os.fork() == 0:
            kernel.die_with_parent(parent)
            files = Files(stdin, stdout, stderr, args, (seccomp, inner.fileno()))
            become_bubblewrap(program, first, self._own, files)
        for file in (stdin, feed, stdout, stderr, seccomp, args):
            os.close(file)
        inner.close()
        by_kernel = self._trials.limited if self._trials is not None else set()
        config = {
            "program": wanted["program"],
            "ours": os.path.dirname(wanted["program"]) == wanted["programs"],
            "preload": wanted["preload"],
            "allowed": permitted,
            "folders": request["folders"],
            "links": request["links"],
            "mounts": [
                {
                    **mount,
                    "source": places[number].path if number in places else "",
                    "is_folder": number not in places or places[number].is_folder,
                }
                for number, mount in enumerate(request["mounts"])
            ],
            "cwd": request["cwd"],
            "umask": request["umask"],
            "first": request["first"],
            "capabilities": wanted["capabilities"],
            "filter": self._host.seccomp.hex(),
            "by_kernel": sorted(by_kernel),
        }
        config["mounts"].sort(key=lambda mount: mount["target"].count("/"))
        self._writable = [item["target"] for item in config["mounts"] if item["mode"] != "ro"]
        os.set_blocking(err, False)
        try:
            self._link.send(json.dumps(config).encode("ascii"))
            heard.refuse_unready(self._hear(self._link, wanted["start_s"]))
        except (OSError, StageError) as error:
            reason = str(error)
            with contextlib.suppress(OSError):
                reason += " " + os.read(err, 4096).decode(errors="replace").strip()
            raise StageError(f"the fork server did not start: {reason.strip()}") from error
        os.close(err)
        os.close(out)

    def run(self, header: dict[str, Any], data: bytes) -> None:
        """Run one trial and answer.

        Raises:
            StageError: The server cannot go on.
            EOFError: The asking process is gone.
        """
        limits = header["limits"]
        stdin, feed = os.pipe()
        out, stdout = os.pipe()
        err, stderr = os.pipe()
        gate, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with gate:
            gate.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            words = {
                "code": header["code"],
                "argv": header["argv"],
                "limits": limits,
                "collect": bool(header["collect"]),
            }
            try:
                message = json.dumps(words).encode("ascii")
                socket.send_fds(self._link, [message], [stdin, stdout, stderr, theirs.fileno()])
            except OSError as error:
                raise StageError(f"the fork server is gone: {error}") from error
            theirs.close()
            for file in (stdin, stdout, stderr):
                os.close(file)
            pid = self._admit(gate)
            death = os.pidfd_open(pid)
            started = time.monotonic()
            try:
                gate.send(b"y")
            except OSError as error:
                raise StageError(f"the fork server closed on a trial: {error}") from error
            watch = Served(
                pid,
                death,
                stdin=feed,
                stdout=out,
                stderr=err,
                channel=self._channel.fileno(),
                output_bytes=limits["output_bytes"],
            )
            sampled = limits["memory_bytes"]
            if self._trials is not None and "memory" in self._trials.limited:
                sampled = 0
            watch.until_dead(memoryview(data), started + limits["wall_s"], sampled)
            wall_s = time.monotonic() - started
            for file in (out, err, death):
                os.close(file)
            if watch.abandoned:
                raise EOFError("the asking process is gone")
            self._answer(header, watch, wall_s, gate)

    def _admit(self, gate: socket.socket) -> int:
        """Return the trial's process id once it has its id maps and its limits."""
        poll = select.poll()
        poll.register(gate, select.POLLIN)
        poll.register(self._link, select.POLLIN | select.POLLRDHUP)
        poll.register(self._channel, select.POLLRDHUP)
        events = dict(poll.poll(_ANSWER_S * 1000))
        if self._channel.fileno() in events:
            raise EOFError("the asking process is gone")
        if gate.fileno() not in events:
            raise StageError("the fork server started no trial")
        pid = heard.sender(gate)
        try:
            for kind, rows in self._maps.items():
                with open(f"/proc/{pid}/{kind}_map", "w", encoding="ascii") as file:
                    file.write(rows)
        except OSError as error:
            raise StageError(f"a trial cannot be given its ids: {error.strerror}") from error
        if self._trials is not None:
            self._trials.admit(pid)
        return pid

    def _answer(
        self, header: dict[str, Any], watch: Served, wall_s: float, gate: socket.socket
    ) -> None:
        said = heard.usage(self._hear(self._link, _ANSWER_S))
        cpu_s, peak = said.cpu_s, max(watch.peak_bytes, said.peak_bytes)
        out_of_memory = watch.over_memory
        if self._trials is not None:
            cpu_s = max(cpu_s, self._trials.cpu_s() or 0.0)
            peak = self._trials.peak_bytes() or peak
            out_of_memory = out_of_memory or self._trials.out_of_memory()
        wanted = 1 + len(self._writable) if header["collect"] else 0
        places, problem = heard.places(gate, wanted)
        try:
            if places is None and not (watch.timed_out or out_of_memory):
                raise StageError(f"the fork server could not build the world: {problem}")
            stage = Stage(0, 0, 0)
            for target, file in zip(("/", *self._writable), places or (), strict=False):
                stage.place(target, f"/proc/self/fd/{file}/.", writable=True)
            files = (
                collect(stage, header["collect"], header["limits"]["collect_bytes"])
                if places
                else []
            )
        finally:
            for file in places or ():
                os.close(file)
        answer(
            self._channel,
            watch,
            files,
            exit_code=said.code,
            out_of_memory=out_of_memory,
            wall_s=wall_s,
            cpu_s=cpu_s,
            peak_memory_bytes=peak,
            kept=False,
        )

    def _hear(self, link: socket.socket, patience_s: float) -> bytes:
        poll = select.poll()
        poll.register(link, select.POLLIN)
        poll.register(self._channel, select.POLLRDHUP)
        events = dict(poll.poll(patience_s * 1000))
        if self._channel.fileno() in events:
            raise EOFError("the asking process is gone")
        if not events:
            raise StageError("the fork server does not answer")
        return link.recv(_MESSAGE)


def serve_many(
    channel: socket.socket, mapper: socket.socket, host: Host, name: str, request: dict[str, Any]
) -> None:
    """Start a fork server, say so, and run one trial after the other until the asker is gone.

    Raises:
        StageError: This world cannot be served, or the server is lost.
        EOFError: The asking process is gone.
    """
    refuse_unserved(request)
    if host.is_root:
        kernel.unshare(kernel.CLONE_NEWNS)
    else:
        kernel.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWNS)
        ask_for_map(mapper)
    kernel.mount("none", "/", "", kernel.MS_REC | kernel.MS_PRIVATE)
    sources = open_sources(request, host)
    zygote = Source(_ZYGOTE, host.id_base)
    bubblewrap = open_bubblewrap(host)
    server = Server(host, channel, request)
    server.limit(name)
    limits = request["limits"]
    stage = Stage(limits["disk_bytes"], limits["files"], host.id_base)
    stage.mount()
    program = bring_bubblewrap(stage, host, bubblewrap)
    brought = {
        key: stage.bring(source, host.userns, read_only=True) for key, source in sources.items()
    }
    ours = stage.bring(zygote, host.userns, read_only=True)
    if host.is_root:
        leave_root(mapper, host.id_base)
    root, binds, places = _first_world(stage, request, sources, brought)
    stage.ensure(PROGRAM, is_folder=False)
    binds.append((ours, PROGRAM))
    first = {**request, "cwd": "/", "first": False}
    words = arguments(first, root, binds, stage.scratch(0o1777), capabilities=())
    # The kernel lets a trial mount its own only where one is in sight that nothing covers.
    words += packed(("--proc", f"{HIDDEN}/proc"))
    permitted = [
        mount["target"]
        for mount in request["mounts"]
        if mount["mode"] == "ro" and mount["target"] in request["serve"]["allowed"]
    ]
    server.start(program, words, places, permitted)
    wire.send(channel, {"ready": True})
    while True:
        header = wire.receive(channel)
        server.run(header, wire.read_exactly(channel, header["stdin"]))


def refuse_unserved(request: dict[str, Any]) -> None:
    """Refuse worlds that only a command of its own is started in.

    Raises:
        StageError: The world has an image, a network, or mounts that hold others.
    """
    if request["base"] or request["network"] or request["keep_from"]:
        raise StageError("worlds with an image or a network are not served")
    solid = [mount["target"] for mount in request["mounts"] if mount["mode"] != "scratch"]
    for mount in request["mounts"]:
        if any(mount["target"].startswith(target.rstrip("/") + "/") for target in solid):
            raise StageError(f"{mount['target']} lies within another mount: not served")


def _first_world(
    stage: Stage, request: dict[str, Any], sources: dict[str, Source], brought: dict[str, str]
) -> tuple[str, list[tuple[str, str]], dict[int, Place]]:
    """Build the server's own world: what is read-only, ``/etc``, and every source out of sight."""
    kept = [
        (number, mount)
        for number, mount in enumerate(request["mounts"])
        if mount["mode"] == "ro" or mount["target"] == "/etc"
    ]
    first = {**request, "cwd": "/", "mounts": [mount for _, mount in kept]}
    root, binds = build(
        stage,
        first,
        {str(new): sources[str(old)] for new, (old, _) in enumerate(kept)},
        {str(new): brought[str(old)] for new, (old, _) in enumerate(kept)},
    )
    places = {}
    for key, where in brought.items():
        inside = f"{HIDDEN}/m/{key}"
        stage.ensure(inside, is_folder=sources[key].is_folder)
        binds.append((where, inside))
        places[int(key)] = Place(inside, sources[key].is_folder)
    stage.ensure(f"{HIDDEN}/t", is_folder=True)
    return root, binds, places


def _identity(table: str) -> str:
    """Return the map of a namespace below ours with the same ids."""
    rows = []
    with open(table, encoding="ascii") as file:
        for line in file:
            inside, _, count = line.split()
            rows.append(f"{inside} {inside} {count}")
    return "\n".join(rows)
