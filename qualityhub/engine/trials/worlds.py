"""Prepare the world that an environment's trials run in, and build commands for it.

Function, scorer and episode environments get the rehearsal base, an interpreter and the layer of
what they declare. A task environment has one world per task, since each may have its own
Dockerfile: built by a container engine where one answers, else rehearsed, else unavailable.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from qualityhub.engine.digest import digest_json
from qualityhub.engine.environments.model import Environment, Task
from qualityhub.engine.errors import InvalidInputError, SandboxUnavailableError
from qualityhub.engine.sandbox import base, idmaps, images, rehearse, store
from qualityhub.engine.sandbox.buildcontext import ContextError
from qualityhub.engine.sandbox.container import ContainerSandbox
from qualityhub.engine.sandbox.dockerfile import read_dockerfile
from qualityhub.engine.sandbox.interpreters import (
    Interpreter,
    default_interpreter,
    find_interpreter,
    valid_specifier,
)
from qualityhub.engine.sandbox.layers import TARGET, Layer, LayerFailed, build_layer, locate_layer
from qualityhub.engine.sandbox.port import Command, Limits, Mount, Sandbox
from qualityhub.engine.trials.model import World

WORLD_VERSION = 1
_ENGINE = "a container engine (Docker or Podman; DOCKER_HOST names its socket)"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_REHEARSED = "the image was rehearsed on this host's own files, since no container engine answers"
_UNOWNED = "files of the image belong to one user here, so what depends on owners is not certain"
_IMAGE_PYTHONS = ("python3", "python")

Progress = Callable[[str], None]


def prepare_world(
    environment: Environment,
    sandbox: Sandbox,
    home: Path,
    *,
    task: Task | None = None,
    progress: Progress | None = None,
    refresh: bool = False,
) -> World:
    """Return the world of an environment, or of one task where each has its own.

    What the environment gets wrong is a world with status ``failed``; what this host cannot is
    ``unavailable``.

    Args:
        environment: As read.
        sandbox: Provider that will run the trials.
        home: Our data folder.
        task: The task, for the ``task`` family; its first where it is left out.
        progress: Told one line at each step.
        refresh: Resolve and build again although results are stored.

    Raises:
        SandboxUnavailableError: The provider cannot run here.
        MachineryError: Our own parts failed.
    """
    tell = progress or (lambda _: None)
    maker = _Maker(environment, sandbox, home, tell, refresh=refresh)
    if environment.family == "task":
        return maker.of_task(task or environment.tasks[0])
    return maker.of_python(
        environment.dependencies.python, environment.dependencies.requirements, _Extras()
    )


@dataclass(frozen=True, slots=True)
class _Extras:
    """What a rehearsed image adds to the world of its interpreter and layer."""

    files: str = ""
    path: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str = ""


class _Maker:
    """Makes worlds of one environment."""

    def __init__(
        self,
        environment: Environment,
        sandbox: Sandbox,
        home: Path,
        tell: Progress,
        *,
        refresh: bool,
    ) -> None:
        self._environment = environment
        self._sandbox = sandbox
        self._home = home
        self._tell = tell
        self._refresh = refresh

    def of_python(self, spec: str | None, requirements: tuple[str, ...], extras: _Extras) -> World:
        """Return a world of interpreter, layer and perhaps the files of a rehearsed image."""
        if spec and not valid_specifier(spec):
            return self._failed(f"the declared Python version {spec!a} cannot be understood")
        python = self._interpreter(spec)
        if python is None:
            return self._unavailable(
                f"this host has no Python {spec}", f"Python {spec} on this host"
            )
        layer = build_layer(
            requirements, python, self._home, self._sandbox, self._tell, refresh=self._refresh
        )
        if isinstance(layer, LayerFailed):
            return replace(self._failed(layer.reason), log=layer.log, python=python.version)
        if not isinstance(layer, Layer):
            return replace(
                self._unavailable(layer.reason, layer.would_need),
                log=layer.log,
                python=python.version,
            )
        return self._ready(python, layer, extras)

    def of_task(self, task: Task) -> World:
        """Return the world of one task with an image of its own."""
        unable = _unable(task.data, self._environment.root)
        if unable is not None:
            return self._unavailable(*unable)
        root = self._environment.root or Path()
        dockerfile = str(task.data.get("dockerfile") or "")
        image = str(task.data.get("docker_image") or "")
        context = str(task.data.get("context") or "") or str(Path(dockerfile).parent)
        if not dockerfile and not image:
            return self._failed("the task names neither a Dockerfile nor an image")
        if images.engine_available():
            return self._of_image(root, _below(root, context), dockerfile, image)
        text = f"FROM {image}\n"
        if dockerfile:
            text = _below(root, dockerfile).read_text(encoding="utf-8", errors="replace")
        return self._rehearsed(text, _below(root, context))

    def _of_image(self, root: Path, context: Path, dockerfile: str, image: str) -> World:
        if dockerfile:
            made = images.build_image(
                context,
                str(_below(root, dockerfile).relative_to(context)),
                self._home,
                self._tell,
                refresh=self._refresh,
            )
        else:
            made = images.fetch_image(image, self._home, self._tell, refresh=self._refresh)
        if isinstance(made, images.ImageFailed):
            failed = self._unavailable if made.host_fault else None
            world = failed(made.reason, made.would_need) if failed else self._failed(made.reason)
            return replace(world, log=made.log)
        if isinstance(self._sandbox, ContainerSandbox):
            # The engine's own image has its owners, whatever became of them in the tree.
            owned = True
            try:
                self._sandbox.prepare(made.path)
            except SandboxUnavailableError as error:
                return self._unavailable(error.message, error.hint)
        else:
            owned = self._sandbox.capability().ownership and idmaps.current().keeps_owners
        found = _python_in(made.path, made.env)
        world = World(
            status="ready",
            provider=self._sandbox.name,
            provisional=not owned,
            provisional_reason="" if owned else _UNOWNED,
            base=made.digest,
            env=dict(made.env),
            workdir=made.workdir,
            user=made.user if made.user not in {"root", "0", "0:0", "root:root"} else "",
            interpreter=found,
            paths={"base": str(made.path)},
            log=made.log,
        )
        if found:
            world = replace(world, python=self._version_in(world, found))
        return self._named(world)

    def _version_in(self, world: World, python: str) -> str:
        seen = self._sandbox.run(
            world_command(
                world,
                (python, "-I", "-S", "-c", "import platform; print(platform.python_version())"),
            )
        )
        return seen.stdout.decode(errors="replace").strip()[:40] if seen.exit_code == 0 else ""

    def _rehearsed(self, text: str, context: Path) -> World:
        rehearsal = read_dockerfile(text, context)
        if rehearsal.errors:
            return self._failed(f"the image does not build: {rehearsal.errors[0]}")
        if rehearsal.unsupported:
            more = len(rehearsal.unsupported) - 1
            rest = f" (and {more} more)" if more else ""
            return self._unavailable(
                f"the Dockerfile cannot be rehearsed here: {rehearsal.unsupported[0]}{rest}",
                _ENGINE,
            )
        try:
            path, digest = rehearse.prepare_files(rehearsal, context, self._home)
        except ContextError as error:
            return self._failed(f"the image does not build: {error}")
        world = self.of_python(
            rehearsal.python or None,
            rehearsal.pip_requirements,
            _Extras(
                files=digest,
                path=str(path),
                env={name: value for name, value in rehearsal.env.items() if name != "PATH"},
                workdir=rehearsal.workdir,
            ),
        )
        if world.status == "unavailable" and not world.log:
            return replace(world, would_need=f"{world.would_need}, or {_ENGINE}")
        return world

    def _interpreter(self, spec: str | None) -> Interpreter | None:
        if isinstance(self._sandbox, ContainerSandbox):
            return self._sandbox.interpreter(spec)
        return find_interpreter(spec)

    def _ready(self, python: Interpreter, layer: Layer, extras: _Extras) -> World:
        paths = {
            "interpreter": str(python.path),
            "prefix": str(python.prefix),
            "layer": str(layer.path),
        }
        if extras.files:
            paths["files"] = extras.path
        return self._named(
            World(
                status="ready",
                provisional=bool(extras.files),
                provisional_reason=_REHEARSED if extras.files else "",
                provider=self._sandbox.name,
                python=python.version,
                layer=layer.digest,
                lock=layer.lock,
                log=layer.log,
                paths=paths,
                files=extras.files,
                env=dict(extras.env),
                workdir=extras.workdir,
                interpreter=f"{TARGET}/bin/python",
            ),
            python,
            layer.identity,
        )

    def _named(self, world: World, python: Interpreter | None = None, layer: str = "") -> World:
        capability = self._sandbox.capability()
        facts: dict[str, Any] = {
            "version": WORLD_VERSION,
            "provider": world.provider,
            "ownership": capability.ownership,
            "machine": platform.machine(),
            "base": world.base or base.facts(),
            "files": world.files,
            "layer": layer,
            "python": world.python,
            "env": dict(world.env),
            "workdir": world.workdir,
            "user": world.user,
        }
        if python is not None:
            facts["implementation"] = python.implementation
            facts["libc"] = python.libc
        return replace(world, digest=digest_json("world", facts))

    def _failed(self, reason: str) -> World:
        return World(status="failed", reason=_closed(reason), provider=self._sandbox.name)

    def _unavailable(self, reason: str, would_need: str) -> World:
        return World(
            status="unavailable",
            reason=_closed(reason),
            would_need=would_need,
            provider=self._sandbox.name,
        )


def _closed(sentence: str) -> str:
    sentence = sentence.strip()
    return sentence if sentence.endswith((".", "…")) else sentence + "."


def _unable(data: Mapping[str, Any], root: Path | None) -> tuple[str, str] | None:
    if root is None:
        return "the environment has no files here", "its files"
    if data.get("compose"):
        return "the task needs several services (compose)", "support for compose services"
    if str(data.get("os") or "linux") != "linux":
        return f"the task runs on {data['os']}", f"a {data['os']} worker"
    if data.get("gpus"):
        return "the task needs a GPU", "a worker with a GPU"
    return None


def _below(root: Path, relative: str) -> Path:
    """Return a path below the environment's root.

    Raises:
        InvalidInputError: It leaves the root, by its name or through a link.
    """
    path = (root / relative).resolve()
    if not path.is_relative_to(root.resolve()):
        raise InvalidInputError("package.outside", f"{relative!a} leaves the environment.")
    return path


def _python_in(tree: Path, env: Mapping[str, str]) -> str:
    """Return the Python that an image's PATH finds; links are resolved inside the image only."""
    for name in _IMAGE_PYTHONS:
        for folder in (env.get("PATH") or _PATH).split(":"):
            if folder.startswith("/") and images.is_program(tree, f"{folder}/{name}"):
                return f"{folder}/{name}"
    return ""


def world_python(world: World) -> str:
    """Return the path, inside the world, of the Python that sees the layer; empty for none."""
    return world.interpreter


def world_command(
    world: World,
    argv: tuple[str, ...],
    *,
    extra_mounts: tuple[Mount, ...] = (),
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    stdin: bytes = b"",
    collect: tuple[str, ...] = (),
    limits: Limits | None = None,
) -> Command:
    """Return a command that runs in a prepared world.

    Args:
        world: Ready.
        argv: Program and arguments.
        extra_mounts: On top of the world's own; a later one of the same target wins.
        env: On top of the image's variables and our clean ones.
        cwd: The image's working directory, else ``/``, where it is left out.
        stdin: Fed to the program.
        collect: Read back afterwards.
        limits: The provider's defaults where they are left out.

    Raises:
        InvalidInputError: The world is not ready.
    """
    if world.status != "ready":
        raise InvalidInputError("world.not_ready", f"The world is {world.status}: {world.reason}")
    if world.user:
        argv = ("setpriv", *_as_user(world.user), "--", *argv)
    return Command(
        argv=argv,
        env={**_environment(world), **(env or {})},
        mounts=(*_mounts(world), *extra_mounts),
        base=Path(world.paths["base"]) if world.base else None,
        cwd=cwd if cwd is not None else world.workdir or "/",
        stdin=stdin,
        collect=collect,
        limits=limits or Limits(),
    )


def _as_user(user: str) -> tuple[str, ...]:
    name, _, group = user.partition(":")
    if group:
        return f"--reuid={name}", f"--regid={group}", "--clear-groups"
    return f"--reuid={name}", f"--regid={name}", "--clear-groups"


def _environment(world: World) -> dict[str, str]:
    path = world.env.get("PATH") or _PATH
    if not world.base:
        path = f"{TARGET}/bin:{path}"
    return {
        "HOME": "/root",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONHASHSEED": "0",
        "PYTHONNOUSERSITE": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        **world.env,
        "PATH": path,
    }


def _mounts(world: World) -> tuple[Mount, ...]:
    mounts: list[Mount] = []
    if world.paths.get("files"):
        mounts += rehearse.mounts(Path(world.paths["files"]))
    if world.paths.get("layer"):
        mounts.append(Mount(TARGET, Path(world.paths["layer"])))
    prefix = world.paths.get("prefix")
    if (
        prefix
        and world.provider != "container"
        and not Path(prefix).is_relative_to("/usr")
        and Path(prefix) != default_interpreter().prefix
    ):
        mounts.append(Mount(prefix, Path(prefix)))
    return tuple(mounts)


def command_base(
    world: World,
) -> tuple[Path | None, tuple[Mount, ...], dict[str, str], tuple[str, ...]]:
    """Return what a command in a world starts from: base, mounts, variables, Python."""
    return (
        Path(world.paths["base"]) if world.base else None,
        _mounts(world),
        _environment(world),
        (world.interpreter,) if world.interpreter else (),
    )


def world_to_json(world: World) -> dict[str, Any]:
    """Return a world as JSON, without the paths of this host."""
    value = asdict(world)
    del value["paths"]
    return json.loads(json.dumps(value))  # type: ignore[no-any-return]


def world_from_json(value: Mapping[str, Any]) -> World:
    """Return a world from :func:`world_to_json`; its paths are missing until it is located.

    Raises:
        InvalidInputError: It is no such document.
    """
    try:
        return World(**{**value, "lock": tuple(value.get("lock", ())), "paths": {}})
    except TypeError as error:
        raise InvalidInputError("world.document", f"This is no world: {error}") from error


def locate_world(value: Mapping[str, Any], home: Path) -> World | None:
    """Return a stored world with this host's paths, or None where a part of it is not here.

    Args:
        value: From :func:`world_to_json`.
        home: Our data folder.
    """
    world = world_from_json(value)
    if world.status != "ready":
        return world
    paths: dict[str, str] = {}
    for role, kind, digest in (
        ("base", images.KIND, world.base),
        ("files", rehearse.KIND, world.files),
    ):
        if digest:
            found = store.lookup(home, kind, digest)
            if found is None:
                return None
            paths[role] = str(found[0])
    if world.layer:
        layer = locate_layer(world.layer, home)
        if layer is None:
            return None
        paths["layer"] = str(layer.path)
    if not world.base and world.provider != "container":
        python = find_interpreter(f"=={world.python}")
        if python is None:
            return None
        paths |= {"interpreter": str(python.path), "prefix": str(python.prefix)}
    return replace(world, paths=paths)
