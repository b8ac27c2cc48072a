"""The other provider: a container per command through the Docker API (Docker or Podman).

A plain run without network, with limits, dropped capabilities and no new privileges. The engine's
own rules bound it; where its root is the host's root, commands run as an unprivileged user.
"""

from __future__ import annotations

import contextlib
import io
import os
import stat
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import docker
from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from docker.utils.socket import STDOUT, frames_iter

from qualityhub.engine.errors import MachineryError, SandboxUnavailableError
from qualityhub.engine.sandbox import seccomp, store
from qualityhub.engine.sandbox.engine import connect, engine_address
from qualityhub.engine.sandbox.interpreters import Interpreter, default_interpreter
from qualityhub.engine.sandbox.port import Capability, Command, Completed, Mount
from qualityhub.engine.sandbox.trees import unpack_stream
from qualityhub.engine.sandbox.words import refuse

_UNPRIVILEGED = 65532
_CAPABILITIES = [
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "NET_BIND_SERVICE",
]
_ASK = (
    "import sys,platform;print(sys.executable);print(sys.base_prefix);"
    "print(platform.python_version());print(*platform.libc_ver())"
)
_REMEDY = "start Docker or Podman's service, or set DOCKER_HOST"
_SAMPLE_S = 0.5
_GRACE_S = 10
_STDIN = "/.qh-stdin"
_START = "/.qh-start"
_LINK = 1 << 27


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


class ContainerSandbox:
    """Runs each command in a new container of one image, or of an image built before."""

    name = "container"

    def __init__(self, home: Path, *, image: str = "") -> None:
        """Prepare; the engine is not asked yet.

        Args:
            home: Our data folder.
            image: Stands for the rehearsal base; by default the slim Python image of our version.
        """
        self._home = home
        version = ".".join(default_interpreter().version.split(".")[:2])
        self._image = image or f"python:{version}-slim"
        self._lock = threading.Lock()
        self._connected: docker.DockerClient | None = None
        self._capability: Capability | None = None
        self._interpreter: Interpreter | None = None
        self._safe_root = False
        self._profile: tuple[str, ...] = ()

    def capability(self) -> Capability:
        """Say whether an engine answers and has the image; the first call asks it."""
        if self._capability is None:
            self._capability = self._probe()
        return self._capability

    def interpreter(self, spec: str | None = None) -> Interpreter | None:
        """Return the Python of the image, or None where it does not satisfy a specifier."""
        if self._interpreter is None:
            seen = self.run(
                Command(
                    argv=("python3", "-I", "-S", "-c", _ASK),
                    env={"PATH": "/usr/local/bin:/usr/bin:/bin"},
                )
            )
            lines = seen.stdout.decode(errors="replace").splitlines()
            if seen.exit_code != 0 or len(lines) < 4:
                return None
            self._interpreter = Interpreter(
                Path(lines[0]), Path(lines[1]), lines[2], libc=lines[3].strip()
            )
        if spec is None or self._interpreter.satisfies(spec):
            return self._interpreter
        return None

    def run(self, command: Command) -> Completed:
        """Run one command in a new container; see the port for the contract."""
        refused = refuse(command)
        if refused is not None:
            return refused
        client = self._client()
        try:
            with tempfile.TemporaryDirectory(prefix="qh-container-") as folder:
                return self._run(client, command, Path(folder))
        except (APIError, DockerException, OSError) as error:
            raise MachineryError(
                "sandbox.engine", f"the container engine failed: {error}"
            ) from error

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            if self._connected is not None:
                self._connected.close()
                self._connected = None

    def _client(self) -> docker.DockerClient:
        with self._lock:
            if self._connected is None:
                address = engine_address()
                if not address:
                    raise SandboxUnavailableError(
                        "sandbox.unavailable", "no container engine answers", _REMEDY
                    )
                try:
                    self._connected = connect(address)
                except DockerException as error:
                    raise SandboxUnavailableError(
                        "sandbox.unavailable", f"the container engine does not answer: {error}"
                    ) from error
                options = [
                    str(item) for item in self._connected.info().get("SecurityOptions") or []
                ]
                self._safe_root = any("rootless" in item or "userns" in item for item in options)
            return self._connected

    def _probe(self) -> Capability:
        try:
            client = self._client()
            client.images.get(self._image)
        except SandboxUnavailableError as error:
            return Capability(self.name, usable=False, reason=error.message, remedy=error.hint)
        except ImageNotFound:
            try:
                client.images.pull(self._image)
            except (DockerException, OSError):
                return Capability(
                    self.name,
                    usable=False,
                    reason=f"the engine has no image {self._image} and cannot fetch it",
                    remedy=f"load the image {self._image} into the engine",
                )
        except (DockerException, OSError) as error:
            return Capability(
                self.name, usable=False, reason=f"the container engine failed: {error}"
            )
        hard = ("wall_s", "cpu_s", "memory_bytes", "pids", "open_files", "output_bytes")
        limits = dict.fromkeys(hard, "hard")
        limits |= {"disk_bytes": "soft", "files": "none", "system_calls": "hard"}
        notes = ["disk use is sampled and the number of files is not limited"]
        remedies = []
        if not self._takes_profile():
            limits["system_calls"] = "none"
            notes.append("the engine refuses our system call filter and applies its own")
        if not self._safe_root:
            notes.append("the engine's root is the host's, so commands run as an unprivileged user")
            remedies.append("run the engine rootless or with remapped user ids")
        return Capability(
            self.name,
            usable=True,
            reason="; ".join(notes),
            remedy="; ".join(remedies),
            limits=limits,
            ownership=self._safe_root,
        )

    def _takes_profile(self) -> bool:
        """Whether the engine accepts our system call filter with a container's settings."""
        self._profile = (f"seccomp={seccomp.profile()}",)
        with contextlib.suppress(MachineryError):
            seen = self.run(Command(argv=("true",), env={"PATH": "/usr/bin:/bin"}))
            if seen.exit_code == 0:
                return True
        self._profile = ()
        return False

    def _run(self, client: docker.DockerClient, command: Command, folder: Path) -> Completed:
        uid = 0 if self._safe_root else _UNPRIVILEGED
        folder.chmod(0o755)
        for name, content in (("stdin", command.stdin), ("start", _shim(command))):
            (folder / name).write_bytes(content)
            (folder / name).chmod(0o644)
        container = client.api.create_container(
            self._image_of(command),
            command=[_START],
            entrypoint=["/bin/sh"],
            hostname=command.hostname,
            user=f"{uid}:{uid}",
            working_dir="/",
            network_disabled=not command.network,
            host_config=self._host_config(client, command, folder),
        )
        try:
            self._lay_out(client, container["Id"], command, uid)
            return self._watch(client, container["Id"], command)
        finally:
            with contextlib.suppress(DockerException, OSError):
                client.api.remove_container(container["Id"], force=True, v=True)

    def _image_of(self, command: Command) -> str:
        if command.base is None:
            return self._image
        facts = store.read_json(command.base.with_name(command.base.name + ".json"))
        if facts is None or not facts.get("image"):
            raise SandboxUnavailableError(
                "sandbox.unavailable",
                "the container provider runs only images that the engine built",
                "use --sandbox bwrap",
            )
        return str(facts["image"])

    def _host_config(
        self, client: docker.DockerClient, command: Command, folder: Path
    ) -> dict[str, Any]:
        limits = command.limits
        binds = [f"{folder}/stdin:{_STDIN}:ro", f"{folder}/start:{_START}:ro"]
        binds += [
            f"{mount.source.resolve()}:{mount.target}:ro"
            for mount in command.mounts
            if mount.source is not None and _is_bound(mount)
        ]
        memory = limits.memory_bytes
        return client.api.create_host_config(
            binds=binds,
            network_mode=None if command.network else "none",
            mem_limit=memory,
            memswap_limit=memory,
            pids_limit=limits.pids + 2,
            cap_drop=["ALL"],
            cap_add=_CAPABILITIES if self._safe_root else None,
            security_opt=["no-new-privileges", *self._profile],
            shm_size=limits.disk_bytes,
            log_config=docker.types.LogConfig(type="none"),
            init=False,
        )

    def _lay_out(
        self, client: docker.DockerClient, container: str, command: Command, uid: int
    ) -> None:
        """Put writable folders into the container's own layer, which outlives its processes."""
        copied = [mount for mount in command.mounts if not _is_bound(mount)]
        if not copied:
            return
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as out:
            for mount in sorted(copied, key=lambda item: item.target.count("/")):
                _add(out, mount, uid)
        archive.seek(0)
        client.api.put_archive(container, "/", archive.getvalue())

    def _watch(self, client: docker.DockerClient, container: str, command: Command) -> Completed:
        output = _Output(command.limits.output_bytes)
        attached = client.api.attach_socket(
            container, params={"stdout": 1, "stderr": 1, "stream": 1}
        )
        reader = threading.Thread(target=_read, args=(attached, output), daemon=True)
        client.api.start(container)
        started = time.monotonic()
        reader.start()
        peak = [0, 0.0]
        timed_out = full = False
        while True:
            left = started + command.limits.wall_s - time.monotonic()
            reader.join(max(0.0, min(left, _SAMPLE_S)))
            state = client.api.inspect_container(container)["State"]
            if not state["Running"]:
                break
            if left <= 0:
                timed_out = True
                break
            _sample(client, container, peak)
            if _written(client, container) > command.limits.disk_bytes:
                full = True
                break
        with contextlib.suppress(APIError):
            client.api.kill(container)
        code = int(client.api.wait(container, timeout=_GRACE_S)["StatusCode"])
        wall_s = time.monotonic() - started
        reader.join(_GRACE_S)
        _close(attached)
        state = client.api.inspect_container(container)["State"]
        killed = timed_out or full or 128 < code <= 192
        if command.keep is not None and code == 0 and not killed:
            self._keep(client, container, command, command.keep)
        return Completed(
            exit_code=None if killed else code,
            signal=(9 if timed_out or full else code - 128) if killed else None,
            timed_out=timed_out,
            # Not every engine says it; a kill that was not ours has hardly another cause.
            out_of_memory=bool(state.get("OOMKilled"))
            or (code == 137 and not timed_out and not full),
            stdout=bytes(output.kept[0]),
            stderr=bytes(output.kept[1]),
            dropped_bytes=output.dropped,
            collected=dict(_collected(client, container, command)),
            wall_s=wall_s,
            cpu_s=float(peak[1]),
            peak_memory_bytes=int(peak[0]),
        )

    def _keep(
        self, client: docker.DockerClient, container: str, command: Command, target: Path
    ) -> None:
        pieces, _ = client.api.get_archive(container, command.keep_from)
        with tempfile.TemporaryFile() as file:
            for piece in pieces:
                file.write(piece)
            file.seek(0)
            unpack_stream(file, target, -1, strip=PurePosixPath(command.keep_from).name)


def _shim(command: Command) -> bytes:
    """Return the script that sets what the API cannot and runs the command.

    A file, because arguments that are no text cannot travel in the API's JSON; and ``env -i``,
    because images set variables of their own.
    """
    limits = command.limits
    variables = [os.fsencode(f"{name}={value}") for name, value in command.env.items()]
    words = [b"env", b"-i", *variables, *(os.fsencode(word) for word in command.argv)]
    path = command.env.get("PATH", "/usr/local/bin:/usr/bin:/bin")
    lines = [
        b"umask %03o" % command.umask,
        b"ulimit -c 0 2>/dev/null; ulimit -t %d; ulimit -n %d" % (limits.cpu_s, limits.open_files),
        b"ulimit -f %d" % max(1, limits.disk_bytes // 512),
        b"cd " + _quoted(os.fsencode(command.cwd)) + b" || exit 126",
        b"PATH=" + _quoted(os.fsencode(path)) + b"; export PATH",
        # Not by exec: a first process ignores signals that an ordinary one dies of. What the shell
        # itself would say about such a death goes nowhere.
        b"exec 3>&2 2>/dev/null",
        b" ".join(_quoted(word) for word in words) + b" <" + _STDIN.encode() + b" 2>&3 3>&-",
        b"exit $?",
    ]
    return b"\n".join(lines) + b"\n"


def _quoted(word: bytes) -> bytes:
    return b"'" + word.replace(b"'", b"'\\''") + b"'"


def _is_bound(mount: Mount) -> bool:
    """Whether the engine mounts it; what only we may read, and what may be written, is copied."""
    if mount.mode != "ro" or mount.source is None:
        return False
    mode = mount.source.stat().st_mode
    return bool(mode & 0o004) and (bool(mode & 0o001) or not stat.S_ISDIR(mode))


def _add(out: tarfile.TarFile, mount: Mount, uid: int) -> None:
    def own(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        entry.uid = entry.gid = uid if mount.mode != "ro" else 0
        entry.uname = entry.gname = ""
        if mount.mode == "ro":
            entry.mode |= 0o555 if entry.isdir() else 0o444
        return entry if entry.isdir() or entry.isreg() or entry.issym() else None

    target = mount.target.lstrip("/")
    if mount.source is None:
        folder = tarfile.TarInfo(target)
        folder.type = tarfile.DIRTYPE
        folder.mode = 0o1777 if target == "tmp" else 0o755
        folder.mtime = int(time.time())
        own(folder)
        out.addfile(folder)
    else:
        out.add(mount.source, arcname=target, filter=own)


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


def _sample(client: docker.DockerClient, container: str, peak: list[Any]) -> None:
    with contextlib.suppress(DockerException, OSError, KeyError, TypeError):
        seen = client.api.stats(container, stream=False, one_shot=True)
        memory = seen["memory_stats"]
        peak[0] = max(peak[0], int(memory.get("max_usage") or memory.get("usage") or 0))
        peak[1] = max(peak[1], seen["cpu_stats"]["cpu_usage"]["total_usage"] / 1e9)


def _written(client: docker.DockerClient, container: str) -> int:
    with contextlib.suppress(DockerException, OSError):
        for seen in client.api.containers(all=True, size=True, filters={"id": container}):
            return int(seen.get("SizeRw") or 0)
    return 0


def _collected(
    client: docker.DockerClient, container: str, command: Command
) -> Iterator[tuple[str, bytes]]:
    for path in command.collect:
        if not _has_plain_parents(client, container, path):
            continue
        with contextlib.suppress(NotFound, APIError):
            pieces, seen = client.api.get_archive(container, path)
            if int(seen.get("mode") or 0) & _LINK:
                continue
            with tempfile.TemporaryFile() as file:
                for piece in pieces:
                    file.write(piece)
                    # A header, the content and its padding: no more is needed.
                    if file.tell() > command.limits.collect_bytes + 2048:
                        break
                file.seek(0)
                with tarfile.open(fileobj=file, mode="r|") as archive:
                    entry = archive.next()
                    content = archive.extractfile(entry) if entry and entry.isreg() else None
                    if content is not None:
                        yield path, content.read(command.limits.collect_bytes)


def _has_plain_parents(client: docker.DockerClient, container: str, path: str) -> bool:
    """Whether no folder on the way to a path is a link: the engine would follow it."""
    if ".." in PurePosixPath(path).parts:
        return False
    for parent in PurePosixPath(path).parents:
        if str(parent) == "/":
            continue
        try:
            _, seen = client.api.get_archive(container, str(parent))
        except (NotFound, APIError):
            return False
        if int(seen.get("mode") or 0) & _LINK:
            return False
    return True
