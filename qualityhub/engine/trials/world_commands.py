"""Commands in a prepared world: base, mounts, variables, the image's user and entry point."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Mapping
from pathlib import Path

from qualityhub.engine.errors import InvalidInputError
from qualityhub.engine.sandbox import rehearse
from qualityhub.engine.sandbox.interpreters import default_interpreter
from qualityhub.engine.sandbox.layers import TARGET
from qualityhub.engine.sandbox.port import Command, Limits, Mount
from qualityhub.engine.trials.model import World

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ENTRY = "/qh/entry"
ENTRY_ENDED = 91
"""Exit status of a command whose image's entry point ended instead of preparing its world."""

_STAYS_TENTHS = 10
_WAITS_TENTHS = 6000
# As in a container that is kept alive by a command of its own and in which others are then run:
# the entry point gets "sh -c 'sleep infinity'" and what it exports reaches no other command.
_ENTER = f"""\
entry=$QH_ENTRY folder=$QH_ENTRY_FOLDER left=$QH_ENTRY_TENTHS
unset QH_ENTRY QH_ENTRY_FOLDER QH_ENTRY_TENTHS
( (
  mkdir -p "$folder" 2>/dev/null
  cd "$folder" 2>/dev/null || cd /
  eval "$entry sh -c 'echo >{ENTRY}/ready; exec sleep infinity'" >{ENTRY}/log 2>&1 </dev/null
  echo "$?" >{ENTRY}/ended
) & )
while [ "$left" -gt 0 ] && ! [ -e {ENTRY}/ready ] && ! [ -e {ENTRY}/ended ]; do
  sleep 0.1 2>/dev/null || sleep 1
  left=$((left - 1))
done
if [ -e {ENTRY}/ended ] && ! [ -e {ENTRY}/ready ]; then
  echo "the entry point ended with status $(cat {ENTRY}/ended)" >&2
  tail -n 20 {ENTRY}/log >&2
  exit {ENTRY_ENDED}
fi
exec "$@"
"""


def entry_digest() -> str:
    """Return the digest of how an entry point is run: part of the worlds that have one."""
    return hashlib.sha256(_ENTER.encode()).hexdigest()[:16]


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
    entry: bool = True,
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
        entry: Whether the image's entry point prepares the world first, where it has one.

    Raises:
        InvalidInputError: The world is not ready.
    """
    if world.status != "ready":
        raise InvalidInputError("world.not_ready", f"The world is {world.status}: {world.reason}")
    variables = {**_environment(world), **(env or {})}
    mounts = _mounts(world)
    if entry and world.entrypoint:
        argv = ("/bin/sh", "-c", _ENTER, "sh", *argv)
        mounts = (*mounts, Mount(ENTRY, mode="scratch"))
        variables |= {
            "QH_ENTRY": shlex.join(world.entrypoint),
            "QH_ENTRY_FOLDER": world.workdir or "/",
            "QH_ENTRY_TENTHS": str(_WAITS_TENTHS if world.entry_waits else _STAYS_TENTHS),
        }
    return Command(
        argv=(*world.become, *argv),
        env=variables,
        mounts=(*mounts, *extra_mounts),
        base=Path(world.paths["base"]) if world.base else None,
        cwd=cwd if cwd is not None else world.workdir or "/",
        stdin=stdin,
        collect=collect,
        limits=limits or Limits(),
    )


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


def _environment(world: World) -> dict[str, str]:
    path = world.env.get("PATH") or PATH
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
