"""The other provider: a container per command through the Docker API (Docker or Podman).

A plain run without network, with limits, dropped capabilities and no new privileges. The engine's
own rules bound it. Root inside is another user for the engine's host where the engine can do that
(rootless, remapped user ids, Podman with a range for ``containers``). Where it cannot, commands
without an image run as an unprivileged user; those of an image need its root and have it, with the
few capabilities of ``container_run``.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

import docker
from docker.errors import DockerException, ImageNotFound

from qualityhub.engine.errors import MachineryError, QualityHubError, SandboxUnavailableError
from qualityhub.engine.sandbox.container_images import image_of
from qualityhub.engine.sandbox.container_life import remove, sweep
from qualityhub.engine.sandbox.container_run import ContainerRun, Running, kill
from qualityhub.engine.sandbox.container_traits import Traits, find_traits
from qualityhub.engine.sandbox.engine import connect, engine_address
from qualityhub.engine.sandbox.interpreters import Interpreter, default_interpreter
from qualityhub.engine.sandbox.port import Capability, Command, Completed
from qualityhub.engine.sandbox.words import refuse

_UNPRIVILEGED = 65532
_ANSWER_S = 120
_ASK = (
    "import sys,platform;print(sys.executable);print(sys.base_prefix);"
    "print(platform.python_version());print(*platform.libc_ver())"
)
_REMEDY = "start Docker or Podman's service, or set DOCKER_HOST"
_REMAP = (
    "give containers user ids of their own: run the engine rootless, or for Docker set "
    "userns-remap in its daemon.json, or for Podman add the line containers:2147483648:16777216 to "
    "/etc/subuid and /etc/subgid"
)
_ENGINE_FAULTS = (DockerException, OSError, KeyError, TypeError, ValueError)


class ContainerSandbox:
    """Runs each command in a new container: of one image, or of the image of a task."""

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
        self._process = os.getpid()
        self._capability: Capability | None = None
        self._interpreter: Interpreter | None = None
        self._traits: Traits | None = None
        self._runs: dict[int, Running] = {}
        # Containers that an engine under way did not remove: asked again when it answers.
        self._left: set[str] = set()

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
        self._tidy(client)
        running = Running()
        self._runs[id(running)] = running
        try:
            traits = self._found(client)
            image, uid = self._image, 0 if traits.remapped else _UNPRIVILEGED
            if command.base is not None:
                image, uid = image_of(client, command.base, self._home), 0
            return ContainerRun(client, traits, command, image=image, uid=uid).run(running)
        except QualityHubError:
            raise
        except _ENGINE_FAULTS as error:
            raise MachineryError(
                "sandbox.engine", f"the container engine failed: {error}"
            ) from error
        finally:
            self._runs.pop(id(running), None)
            if running.left:
                self._left.add(running.container)

    def prepare(self, base: Path) -> None:
        """See that the engine has the image of an exported tree.

        Raises:
            SandboxUnavailableError: It has not, and cannot get it from the tree.
            MachineryError: The engine failed.
        """
        client = self._client()
        try:
            image_of(client, base, self._home)
        except _ENGINE_FAULTS as error:
            raise MachineryError(
                "sandbox.engine", f"the container engine failed: {error}"
            ) from error

    def close(self) -> None:
        """End every running command, and the connection."""
        with self._lock:
            client, self._connected = self._connected, None
        if client is not None:
            for running in tuple(self._runs.values()):
                kill(client, running)
            self._tidy(client)
            client.close()

    def _tidy(self, client: docker.DockerClient) -> None:
        for container in tuple(self._left):
            if remove(client, container):
                self._left.discard(container)

    def _client(self) -> docker.DockerClient:
        with self._lock:
            if self._process != os.getpid():
                # A forked process must not write into its parent's connections.
                self._process, self._connected, self._runs = os.getpid(), None, {}
            if self._connected is None:
                address = engine_address()
                if not address:
                    raise SandboxUnavailableError(
                        "sandbox.unavailable", "no container engine answers", _REMEDY
                    )
                try:
                    self._connected = connect(address, answer_s=_ANSWER_S)
                except DockerException as error:
                    raise SandboxUnavailableError(
                        "sandbox.unavailable", f"the container engine does not answer: {error}"
                    ) from error
                sweep(self._connected)
            return self._connected

    def _found(self, client: docker.DockerClient) -> Traits:
        with self._lock:
            if self._traits is None:
                self._traits = find_traits(client, self._image, self._home)
            return self._traits

    def _probe(self) -> Capability:
        try:
            client = self._client()
            problem = self._without_image(client)
            if problem is not None:
                return problem
            traits = self._found(client)
        except SandboxUnavailableError as error:
            return self._unable(error.message, error.hint)
        except _ENGINE_FAULTS as error:
            return self._unable(f"the container engine failed: {error}")
        return _able(self.name, traits)

    def _without_image(self, client: docker.DockerClient) -> Capability | None:
        try:
            client.images.get(self._image)
        except ImageNotFound:
            try:
                client.images.pull(self._image)
            except (DockerException, OSError):
                return self._unable(
                    f"the engine has no image {self._image} and cannot fetch it",
                    f"load the image {self._image} into the engine",
                )
        return None

    def _unable(self, reason: str, remedy: str = "") -> Capability:
        return Capability(self.name, usable=False, reason=reason, remedy=remedy)


def _able(name: str, traits: Traits) -> Capability:
    hard = ("wall_s", "cpu_s", "memory_bytes", "pids", "open_files", "output_bytes")
    limits = dict.fromkeys(hard, "hard")
    limits |= {
        "disk_bytes": "hard" if traits.quota else "soft",
        "files": "soft" if traits.layers else "none",
        "system_calls": "hard" if traits.profile else "none",
    }
    notes, remedies = [], []
    count = "the number of files is " + ("sampled" if traits.layers else "not limited")
    if traits.quota:
        notes.append(count)
    else:
        notes.append(f"disk use is sampled, {count}")
        remedies.append(
            "keep the engine's storage on XFS with project quotas for a hard disk limit"
        )
    if not traits.profile:
        notes.append("the engine refuses our system call filter and applies its own")
    if not traits.shared:
        limits["read_only"] = "none"
        notes.append(
            "the engine does not see our files, so each command gets copies, to change too"
        )
    if not traits.remapped:
        notes.append(
            "the engine's root is the host's: commands of images run as it with few capabilities, "
            "all others as an unprivileged user"
        )
        remedies.append(_REMAP)
    return Capability(
        name,
        usable=True,
        reason="; ".join(notes),
        remedy="; ".join(remedies),
        limits=limits,
        ownership=traits.remapped,
    )
