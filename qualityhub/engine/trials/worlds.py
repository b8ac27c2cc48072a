"""Prepare the world that an environment's trials run in, and find it again.

Function, scorer and episode environments get the rehearsal base, an interpreter and the layer of
what they declare. A task environment has one world per task, since each may have its own image:
imported, or built by a container engine where one answers, else rehearsed, else unavailable.
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
from qualityhub.engine.errors import InvalidInputError, MachineryError
from qualityhub.engine.sandbox import base, images, reclaim, rehearse, store
from qualityhub.engine.sandbox.buildcontext import ContextError
from qualityhub.engine.sandbox.container import ContainerSandbox
from qualityhub.engine.sandbox.dockerfile import read_dockerfile
from qualityhub.engine.sandbox.images import ImageFailed, ImageTree
from qualityhub.engine.sandbox.interpreters import (
    Interpreter,
    find_interpreter,
    valid_specifier,
)
from qualityhub.engine.sandbox.layers import TARGET, Layer, LayerFailed, build_layer, locate_layer
from qualityhub.engine.sandbox.port import Sandbox
from qualityhub.engine.trials.image_worlds import (
    Wanted,
    failed_world,
    find_archive,
    image_of,
    world_of_image,
)
from qualityhub.engine.trials.model import World
from qualityhub.engine.trials.world_commands import (
    command_base,
    entry_digest,
    world_command,
    world_python,
)

__all__ = [
    "command_base",
    "locate_world",
    "prepare_world",
    "world_command",
    "world_from_json",
    "world_python",
    "world_to_json",
]

WORLD_VERSION = 1
_ENGINE = "a container engine (Docker or Podman; DOCKER_HOST names its socket)"
_REHEARSED = "the image was rehearsed on this host's own files, since no container engine answers"
_VANISHED_TIMES = 3

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
        InvalidInputError: The store was made by another user or for other ids.
        SandboxUnavailableError: The provider cannot run here.
        MachineryError: Our own parts failed.
    """
    tell = progress or (lambda _: None)
    store.claim(home)
    maker = _Maker(environment, sandbox, home, tell, refresh=refresh)
    with reclaim.after_growth(home):
        for _ in range(_VANISHED_TIMES):
            try:
                if environment.family == "task":
                    return maker.of_task(task or environment.tasks[0])
                declared = environment.dependencies
                return maker.of_python(declared.python, declared.requirements, _Extras())
            except _GoneError:
                continue
    raise MachineryError(
        "store.vanishing",
        "parts of a world were removed from the store again and again while it was prepared",
        "raise QH_STORE_MAX_BYTES, or prune while nothing is inspected",
    )


class _GoneError(Exception):
    """A part of the store was removed between being found and being pinned."""


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
        wanted = Wanted(
            image,
            find_archive(root, str(task.data.get("path") or "."), image),
            _below(root, context),
            str(_below(root, dockerfile).relative_to(_below(root, context))) if dockerfile else "",
        )
        made = image_of(wanted, self._home, self._tell, refresh=self._refresh)
        if made is not None:
            return self._of_image(made)
        return self._rehearsed(root, dockerfile, wanted)

    def _of_image(self, made: ImageTree | ImageFailed) -> World:
        if isinstance(made, ImageFailed):
            world = failed_world(made, self._sandbox.name)
            return replace(world, reason=_closed(world.reason))
        pins = self._pinned(made.path)
        world = world_of_image(made, self._sandbox)
        if world.status != "ready":
            return replace(world, reason=_closed(world.reason))
        return self._named(replace(world, pins=pins))

    def _pinned(self, *paths: Path) -> tuple[store.Pin, ...]:
        """Keep parts of the store while the world is used.

        Raises:
            _GoneError: One was removed since it was found.
        """
        pins = tuple(pin for path in paths if (pin := store.pin(path)) is not None)
        if len(pins) < len(paths):
            raise _GoneError
        return pins

    def _rehearsed(self, root: Path, dockerfile: str, wanted: Wanted) -> World:
        if isinstance(self._sandbox, ContainerSandbox):
            return self._unavailable("no image of the task is here", _ENGINE)
        context, text = wanted.context, f"FROM {wanted.image}\n"
        if dockerfile:
            text = _below(root, dockerfile).read_text(encoding="utf-8", errors="replace")
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
        files = [Path(extras.path)] if extras.files else []
        pins = self._pinned(layer.path, *files)
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
                pins=pins,
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
        if world.entrypoint:
            facts["entrypoint"] = [*world.entrypoint, entry_digest()]
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
        return "the task needs a GPU", "a sandbox that hands GPUs on to trials"
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


def world_to_json(world: World) -> dict[str, Any]:
    """Return a world as JSON, without the paths of this host."""
    value = asdict(replace(world, pins=()))
    del value["paths"], value["pins"]
    return json.loads(json.dumps(value))  # type: ignore[no-any-return]


def world_from_json(value: Mapping[str, Any]) -> World:
    """Return a world from :func:`world_to_json`; its paths are missing until it is located.

    Raises:
        InvalidInputError: It is no such document.
    """
    try:
        words = {name: tuple(value.get(name, ())) for name in ("lock", "become", "entrypoint")}
        return World(**{**value, **words, "paths": {}})
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
    pins = tuple(store.pin(Path(path)) for path in paths.values())
    if None in pins:
        return None
    if not world.base and world.provider != "container":
        python = find_interpreter(f"=={world.python}")
        if python is None:
            return None
        paths |= {"interpreter": str(python.path), "prefix": str(python.prefix)}
    return replace(world, paths=paths, pins=pins)
