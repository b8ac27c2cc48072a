"""One command in one container: created, filled, started, watched, read back, removed."""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import docker
from docker.errors import APIError, DockerException
from docker.utils.socket import STDOUT, frames_iter

from qualityhub.engine.errors import MachineryError
from qualityhub.engine.sandbox import container_shim as shim
from qualityhub.engine.sandbox.container_files import Readback, is_bound, lay_out, measure
from qualityhub.engine.sandbox.container_life import create, remove
from qualityhub.engine.sandbox.container_traits import Traits, layer_of
from qualityhub.engine.sandbox.port import Command, Completed, Limits
from qualityhub.engine.sandbox.words import not_started

CAPABILITIES = (
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "NET_BIND_SERVICE",
)
"""As in bubblewrap's worlds; all of it ends at the container."""
_OWN_PIDS = 3
_SAMPLE_S = 0.5
# Looking may take a tenth of the time at most.
_REST = 10
_GRACE_S = 30
_NO_SHELL = (
    "/bin/sh: no such file",
    '"/bin/sh\\": no such file',
    "/bin/sh: not a directory",
    "executable file not found",
    "executable file `/bin/sh` not found",
    "command that was not found",
    "exec format error",
)


@dataclass(slots=True)
class Running:
    """A container under way; another thread may end it.

    Attributes:
        container: Its id, empty before it is created.
        given_up: Set where what becomes of it is no longer wanted.
        left: Set where it could not be removed.
    """

    container: str = ""
    given_up: bool = False
    left: bool = False


@dataclass(slots=True)
class _Output:
    """What was kept of both streams."""

    cap: int
    kept: tuple[bytearray, bytearray] = field(default_factory=lambda: (bytearray(), bytearray()))
    dropped: int = 0

    def take(self, stream: int, piece: bytes) -> None:
        room = max(0, self.cap - len(self.kept[stream]))
        self.kept[stream].extend(piece[:room])
        self.dropped += max(0, len(piece) - room)


@dataclass(frozen=True, slots=True)
class _End:
    """How a container ended."""

    code: int
    timed_out: bool
    full: bool
    oom_said: bool
    wall_s: float
    usage: shim.Report


class ContainerRun:
    """Runs one command."""

    def __init__(
        self, client: docker.DockerClient, traits: Traits, command: Command, *, image: str, uid: int
    ) -> None:
        """Prepare; the engine is not asked yet.

        Args:
            client: The engine.
            traits: What it can do.
            command: What to run.
            image: Its root file system.
            uid: User and group of the first process; 0 has :data:`CAPABILITIES`.
        """
        self._client = client
        self._traits = traits
        self._command = command
        self._image = image
        self._uid = uid

    def run(self, running: Running) -> Completed:
        """Run it to its end.

        Raises:
            MachineryError: It was given up.
            DockerException: The engine failed.
        """
        running.container = create(self._client, self._config())
        try:
            laid = lay_out(
                self._client,
                running.container,
                self._command,
                uid=self._uid,
                bound=self._traits.shared,
            )
            return self._watch(running, laid)
        finally:
            running.left = not remove(self._client, running.container)

    def _config(self) -> dict[str, Any]:
        command = self._command
        return {
            "Image": self._image,
            "Entrypoint": ["/bin/sh"],
            "Cmd": [shim.START],
            "Hostname": command.hostname,
            "User": f"{self._uid}:{self._uid}",
            "WorkingDir": "/",
            "NetworkDisabled": not command.network,
            "AttachStdin": False,
            "AttachStdout": True,
            "AttachStderr": True,
            "Healthcheck": {"Test": ["NONE"]},
            "HostConfig": self._host_config(command.limits),
        }

    def _host_config(self, limits: Limits) -> dict[str, Any]:
        command, traits = self._command, self._traits
        host: dict[str, Any] = {
            "Memory": limits.memory_bytes,
            "MemorySwap": limits.memory_bytes,
            "PidsLimit": limits.pids + _OWN_PIDS,
            "CapDrop": ["ALL"],
            "CapAdd": list(CAPABILITIES) if self._uid == 0 else [],
            "SecurityOpt": ["no-new-privileges", *filter(None, [traits.profile])],
            "ShmSize": limits.disk_bytes,
            "LogConfig": {"Type": "none"},
            "Init": False,
        }
        if not command.network:
            host["NetworkMode"] = "none"
        if traits.userns:
            host["UsernsMode"] = traits.userns
        if traits.quota:
            host["StorageOpt"] = {"size": str(limits.disk_bytes)}
        if command.cpus:
            host["CpusetCpus"] = _cpus(command.cpus)
        if traits.shared:
            host["Mounts"] = [
                {
                    "Type": "bind",
                    "Source": str(mount.source.resolve()),
                    "Target": mount.target,
                    "ReadOnly": True,
                }
                for mount in command.mounts
                if mount.source is not None and is_bound(mount)
            ]
        return host

    def _watch(self, running: Running, laid: int) -> Completed:
        client, container = self._client, running.container
        output = _Output(self._command.limits.output_bytes)
        try:
            # Before the start, or the first words would be lost; some engines see only here, others
            # at the start, that there is nothing to start.
            attached = client.api.attach_socket(
                container, params={"stdout": 1, "stderr": 1, "stream": 1}
            )
        except APIError as error:
            return _without_shell(error)
        reader = threading.Thread(target=_read, args=(attached, output), daemon=True)
        try:
            try:
                client.api.start(container)
            except APIError as error:
                return _without_shell(error)
            reader.start()
            end = self._until_dead(running, reader, laid)
            reader.join(_GRACE_S)
        finally:
            _close(attached)
        if running.given_up:
            raise MachineryError("sandbox.lost", "the sandbox was closed while it ran a command")
        return self._completed(container, output, end)

    def _until_dead(self, running: Running, reader: threading.Thread, laid: int) -> _End:
        client, container, limits = self._client, running.container, self._command.limits
        started = time.monotonic()
        layer: Path | None = None
        look_at = started + _SAMPLE_S
        looked = timed_out = full = alive = False
        usage = shim.Report()
        while True:
            left = started + limits.wall_s - time.monotonic()
            reader.join(max(0.0, min(left, _SAMPLE_S)))
            state = client.api.inspect_container(container)["State"]
            alive = bool(state["Running"])
            if not alive or running.given_up:
                break
            if left <= 0:
                timed_out = True
                usage = _usage(client, container)
                break
            if not reader.is_alive():
                time.sleep(_SAMPLE_S / 10)
            began = time.monotonic()
            if began >= look_at:
                if not looked:
                    layer, looked = layer_of(client, container), True
                full = self._is_full(container, layer, laid)
                if full:
                    break
                look_at = time.monotonic() + max(_SAMPLE_S, _REST * (time.monotonic() - began))
        if alive:
            with contextlib.suppress(APIError):
                client.api.kill(container)
        code = int(client.api.wait(container, timeout=_GRACE_S)["StatusCode"])
        wall_s = time.monotonic() - started
        oom = code == 137 and bool(
            client.api.inspect_container(container)["State"].get("OOMKilled")
        )
        return _End(code, timed_out, full, oom, wall_s, usage)

    def _is_full(self, container: str, layer: Path | None, laid: int) -> bool:
        """Whether more was written than allowed, as far as can be seen from outside."""
        limits = self._command.limits
        if layer is not None:
            size, count = measure(layer, limits.files)
            return size - laid > limits.disk_bytes or count > limits.files
        with contextlib.suppress(DockerException, OSError):
            for seen in self._client.api.containers(all=True, size=True, filters={"id": container}):
                return int(seen.get("SizeRw") or 0) - laid > limits.disk_bytes
        return False

    def _completed(self, container: str, output: _Output, end: _End) -> Completed:
        command = self._command
        back = Readback(self._client, container)
        usage = end.usage
        ours = end.timed_out or end.full
        if not ours:
            usage = shim.read_report(back.file(shim.REPORT, 4096))
        killed = ours or 128 < end.code <= 192
        if command.keep is not None and end.code == 0 and not killed:
            back.keep(command.keep_from, command.keep)
        return Completed(
            exit_code=None if killed else end.code,
            signal=(9 if ours else end.code - 128) if killed else None,
            timed_out=end.timed_out,
            # Not every engine says it; a kill of the first process that was not ours has hardly
            # another cause.
            out_of_memory=end.oom_said or usage.kills > 0 or (end.code == 137 and not ours),
            stdout=bytes(output.kept[0]),
            stderr=bytes(output.kept[1]),
            dropped_bytes=output.dropped,
            collected=dict(back.files(command.collect, command.limits.collect_bytes)),
            wall_s=end.wall_s,
            cpu_s=usage.cpu_s,
            peak_memory_bytes=usage.peak_bytes,
        )


def kill(client: docker.DockerClient, running: Running) -> None:
    """End a container that another thread runs; that thread then says so."""
    running.given_up = True
    if running.container:
        with contextlib.suppress(DockerException, OSError):
            client.api.kill(running.container)


def _without_shell(error: APIError) -> Completed:
    """Return the result of a container whose image has nothing to start; raise everything else."""
    if any(sign in str(error).lower() for sign in _NO_SHELL):
        return not_started(127, "the image has no /bin/sh")
    raise error


def _cpus(count: int) -> str:
    """Return some of our CPUs, others than a neighbour's where there are enough."""
    known = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    ours = known or list(range(os.cpu_count() or 1))
    first = secrets.randbelow(len(ours))
    some = (ours + ours)[first : first + min(count, len(ours))]
    return ",".join(str(number) for number in some)


def _read(attached: Any, output: _Output) -> None:
    with contextlib.suppress(DockerException, OSError, ValueError):
        for stream, piece in frames_iter(attached, tty=False):  # type: ignore[no-untyped-call]
            output.take(0 if stream == STDOUT else 1, piece)


def _close(attached: Any) -> None:
    # The library ties the answer that owns the connection to its socket.
    for part in (getattr(attached, "_response", None), attached):
        if part is not None:
            with contextlib.suppress(OSError, ValueError):
                part.close()


def _usage(client: docker.DockerClient, container: str) -> shim.Report:
    """Return what a container that still runs has used."""
    with contextlib.suppress(DockerException, OSError, KeyError, TypeError, ValueError):
        seen = client.api.stats(container, stream=False, one_shot=True)
        memory = seen["memory_stats"]
        peak = int(memory.get("max_usage") or memory.get("usage") or 0)
        return shim.Report(peak, seen["cpu_stats"]["cpu_usage"]["total_usage"] / 1e9)
    return shim.Report()
