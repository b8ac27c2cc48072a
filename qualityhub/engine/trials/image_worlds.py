"""The world of a task that runs in an image: find or build the image, then see what it says.

As Harbor runs tasks: the image's ENV, WORKDIR and USER hold for every command, and its ENTRYPOINT
prepares the container, which a command of Harbor's own then keeps alive. Its CMD is not used.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from qualityhub.engine.errors import InvalidInputError, SandboxUnavailableError
from qualityhub.engine.sandbox import idmaps
from qualityhub.engine.sandbox.container import ContainerSandbox
from qualityhub.engine.sandbox.fromlines import bare_base
from qualityhub.engine.sandbox.images import ImageFailed, ImageTree, is_program, resolve_inside
from qualityhub.engine.sandbox.images.building import (
    build_image,
    engine_available,
    fetch_image,
    known_build,
    known_image,
)
from qualityhub.engine.sandbox.images.importing import import_archive
from qualityhub.engine.sandbox.images.inside import ImageUser, user_of
from qualityhub.engine.sandbox.images.names import named_image
from qualityhub.engine.sandbox.port import MIB, Completed, Limits, Sandbox
from qualityhub.engine.trials.drivers.task import OFFLINE
from qualityhub.engine.trials.model import World
from qualityhub.engine.trials.world_commands import ENTRY, ENTRY_ENDED, PATH, world_command

UNOWNED = "files of the image belong to one user here, so what depends on owners is not certain"
_PYTHONS = ("python3", "python")
_SETPRIVS = ("/usr/bin/setpriv", "/bin/setpriv", "/usr/sbin/setpriv", "/sbin/setpriv")
_BECOME = (
    "import os,sys;u,g=int(sys.argv[1]),int(sys.argv[2]);"
    "os.setgroups([int(n) for n in sys.argv[3].split(',') if n]);os.setgid(g);os.setuid(u);"
    "os.execvp(sys.argv[4],sys.argv[4:])"
)
_ENTRY_LIMITS = Limits(
    wall_s=60.0,
    cpu_s=60,
    memory_bytes=2048 * MIB,
    disk_bytes=2048 * MIB,
    files=500_000,
    pids=1024,
)
_NOT_HERE = "image.platform"

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Where a task's image comes from.

    Attributes:
        image: Name or path of an archive, as the task says; empty where it says none.
        archive: That archive on this host, None where it names none.
        context: Build context on this host.
        dockerfile: Path of the Dockerfile relative to it; empty for none.
    """

    image: str
    archive: Path | None
    context: Path
    dockerfile: str


def find_archive(root: Path, task_folder: str, image: str) -> Path | None:
    """Return the archive of the package that a task's ``docker_image`` names, if it names one.

    It is looked for beside the Dockerfile, then in the task's folder; never outside the package.
    """
    relative = PurePosixPath(image)
    if not image or relative.is_absolute() or ".." in relative.parts:
        return None
    top = root.resolve()
    for folder in (f"{task_folder}/environment", task_folder):
        path = (top / folder / relative).resolve()
        if not path.is_relative_to(top) or path == top:
            continue
        if path.is_file() or (path / "index.json").is_file() or (path / "manifest.json").is_file():
            return path
    return None


def image_of(
    wanted: Wanted, home: Path, tell: Tell, *, refresh: bool
) -> ImageTree | ImageFailed | None:
    """Return a task's image, or None where only a rehearsal is left.

    In this order: an archive of the package, an imported name, the engine, what the engine built
    before. An image that is named wins over the Dockerfile beside it where it can be had.

    Raises:
        SandboxUnavailableError: The engine stopped to answer.
        MachineryError: The image could not be stored.
    """
    if wanted.archive is not None:
        return _imported(wanted.archive, home, tell)
    text = ""
    if wanted.dockerfile:
        text = (wanted.context / wanted.dockerfile).read_text(encoding="utf-8", errors="replace")
    for name in (wanted.image, bare_base(text)):
        tree = named_image(home, name) if name else None
        if tree is not None:
            return tree
    if engine_available():
        return _by_engine(wanted, home, tell, refresh=refresh)
    tree = known_image(wanted.image, home) if wanted.image else None
    if tree is None and wanted.dockerfile:
        tree = known_build(wanted.context, wanted.dockerfile, home)
    return tree


def world_of_image(tree: ImageTree, sandbox: Sandbox) -> World:
    """Return the world of an image, not named yet, or why there is none.

    Raises:
        SandboxUnavailableError: The provider cannot run here.
        MachineryError: Our own parts failed.
    """
    user = user_of(tree.path, tree.user)
    if user is None:
        return World(
            "failed",
            reason=f"the image's USER {tree.user!a} is not in its own /etc/passwd or /etc/group",
            provider=sandbox.name,
        )
    python = _python_in(tree.path, tree.env)
    become = _become(tree.path, user, python)
    if become is None:
        return World(
            "unavailable",
            reason=f"the image runs as {tree.user!a} but has nothing to become that user with",
            would_need="setpriv (util-linux) or Python in the image",
            provider=sandbox.name,
        )
    if isinstance(sandbox, ContainerSandbox):
        # The engine's own image has its owners, whatever became of them in the tree.
        owned = True
        try:
            sandbox.prepare(tree.path)
        except SandboxUnavailableError as error:
            return World(
                "unavailable",
                reason=error.message,
                would_need=error.hint,
                provider=sandbox.name,
            )
    else:
        owned = sandbox.capability().ownership and idmaps.current().keeps_owners
    paths = {"base": str(tree.path)}
    if tree.log_file is not None:
        paths["log"] = str(tree.log_file)
    world = World(
        status="ready",
        provider=sandbox.name,
        provisional=not owned,
        provisional_reason="" if owned else UNOWNED,
        base=tree.digest,
        env={"HOME": user.home, **tree.env},
        workdir=tree.workdir,
        user=tree.user if become else "",
        interpreter=python,
        become=become,
        entrypoint=tree.entrypoint,
        paths=paths,
        log=tree.log,
    )
    if python:
        world = replace(world, python=_version_in(world, sandbox))
    return _with_entry(world, sandbox) if world.entrypoint else world


def failed_world(made: ImageFailed, provider: str) -> World:
    """Return the world of an image that there is none of."""
    return World(
        status="unavailable" if made.host_fault else "failed",
        reason=made.reason,
        would_need=made.would_need,
        provider=provider,
        log=made.log,
        paths={"log": str(made.log_file)} if made.log_file is not None else {},
    )


def _imported(archive: Path, home: Path, tell: Tell) -> ImageTree | ImageFailed:
    try:
        return import_archive(archive, home, tell).tree
    except InvalidInputError as error:
        if error.code == _NOT_HERE:
            return ImageFailed(error.message, host_fault=True, would_need=error.hint)
        if not error.code.startswith("image."):
            raise
        return ImageFailed(f"the image archive {archive.name!a} cannot be used: {error.message}")


def _by_engine(wanted: Wanted, home: Path, tell: Tell, *, refresh: bool) -> ImageTree | ImageFailed:
    if wanted.image:
        made = fetch_image(wanted.image, home, tell, refresh=refresh)
        if isinstance(made, ImageTree) or not wanted.dockerfile or not made.host_fault:
            return made
        tell(f"{made.reason}: building it from the Dockerfile")
    return build_image(wanted.context, wanted.dockerfile, home, tell, refresh=refresh)


def _python_in(tree: Path, env: Mapping[str, str]) -> str:
    """Return the Python that an image's PATH finds; links are resolved inside the image only."""
    for name in _PYTHONS:
        for folder in (env.get("PATH") or PATH).split(":"):
            if folder.startswith("/") and is_program(tree, f"{folder}/{name}"):
                return f"{folder}/{name}"
    return ""


def _become(tree: Path, user: ImageUser, python: str) -> tuple[str, ...] | None:
    """Return the words before a command that make it run as a user; None where nothing can."""
    if (user.uid, user.gid) == (0, 0):
        return ()
    for path in _SETPRIVS:
        found = resolve_inside(tree, path)
        # BusyBox's has the name but not these options.
        if found is not None and found.name == "setpriv" and is_program(tree, path):
            groups = ",".join(map(str, user.groups))
            more = f"--groups={groups}" if groups else "--clear-groups"
            return (path, f"--reuid={user.uid}", f"--regid={user.gid}", more, "--")
    if python:
        groups = ",".join(map(str, user.groups))
        return (python, "-I", "-S", "-c", _BECOME, str(user.uid), str(user.gid), groups)
    return None


def _version_in(world: World, sandbox: Sandbox) -> str:
    seen = sandbox.run(
        world_command(
            world,
            (
                world.interpreter,
                "-I",
                "-S",
                "-c",
                "import platform; print(platform.python_version())",
            ),
            entry=False,
            cwd="/",
        )
    )
    return seen.stdout.decode(errors="replace").strip()[:40] if seen.exit_code == 0 else ""


def _with_entry(world: World, sandbox: Sandbox) -> World:
    """Look once whether the entry point runs the command that it is given."""
    seen = sandbox.run(
        world_command(
            replace(world, entry_waits=True),
            ("sh", "-c", f"test -e {ENTRY}/ready"),
            cwd="/",
            limits=_ENTRY_LIMITS,
        )
    )
    if seen.exit_code == ENTRY_ENDED:
        return _ended(world, seen)
    return replace(world, entry_waits=not seen.timed_out and seen.exit_code == 0)


def _ended(world: World, seen: Completed) -> World:
    """Return why there is no world: the image's fault, unless it lacks what worlds never have."""
    entry = f"the image's ENTRYPOINT ({shlex.join(world.entrypoint)[:200]})"
    said = " ".join(seen.stderr.decode(errors="replace").split())[:300]
    lost = World("unavailable", provider=world.provider, log=world.log)
    if seen.out_of_memory:
        return replace(
            lost,
            reason=f"{entry} needs more memory than a world may use",
            would_need=f"more than {_ENTRY_LIMITS.memory_bytes // MIB} MiB for each world",
        )
    if OFFLINE.search(said):
        return replace(
            lost,
            reason=f"{entry} needs a network: {said}",
            would_need="a network in trials, which have none",
        )
    return replace(
        lost,
        status="failed",
        reason=f"{entry} does not run the command that keeps a task's container alive: {said}",
    )
