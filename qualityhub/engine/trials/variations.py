"""What each variation changes around a trial. Pure: values in, values out.

World-like changes become part of the :class:`Command`; program-like ones go into the payload, and
the in-sandbox program carries them out. Whether a change really took hold is said by the program
(``programs/around.py``, ``programs/task.sh``), never assumed here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from qualityhub.engine.environments.model import Environment, Family
from qualityhub.engine.errors import InvalidInputError
from qualityhub.engine.sandbox.port import Command, Mount
from qualityhub.engine.sandbox.props import CLOCK_TARGET, LOCALE_TARGET, clock_environment
from qualityhub.engine.trials.model import BASELINE, Variation

ENVIRONMENT = "/qh/env"
ORIGIN = "/qh/origin"
FOLDER = "/srv/elsewhere"
HOME = "/srv/someone"
LOCALE = "de_DE.UTF-8"
TIMEZONE = "Asia/Kathmandu"
NOISE = 40
LOAD = 2
DAY_S = 86_400
ALL: frozenset[Family] = frozenset({"function", "scorer", "episode", "task"})
PROGRAMS: frozenset[Family] = frozenset({"function", "scorer", "episode"})
_SHIFT = re.compile(r"([+-])(\d{1,6})d")
_DATE = re.compile(r"@(\d{4}-\d{2}-\d{2})(?: (\d{2}:\d{2}:\d{2}))?")
_NAMES = ("timezone", "locale", "user", "hostname")
_NAME = re.compile(r"[A-Za-z0-9._/+-]{0,64}")
_MOST = {
    "hash_seed": 2**32 - 1,
    "seed": 2**63 - 1,
    "umask": 0o777,
    "cpus": 1024,
    "load": 64,
    "noise": 1000,
}
_MANY_PATIENCE = 8.0
_MOST_PATIENCE = 10.0


@dataclass(frozen=True, slots=True)
class Kind:
    """One thing that can be changed.

    Attributes:
        field: Name in :class:`Variation`.
        label: For messages.
        families: Where the change means anything.
        values: Tried one at a time where the effort is for it; the screen's is the first.
        screened: Whether the all-at-once screen has it.
    """

    field: str
    label: str
    families: frozenset[Family]
    values: tuple[int | str | bool, ...]
    screened: bool = True


KINDS: tuple[Kind, ...] = (
    Kind(
        "clock",
        "clock",
        ALL,
        ("+365d", "+1d", "+30d", "+3650d", "@2032-02-29", "@2031-01-31", "@2031-12-31"),
    ),
    Kind("timezone", "time zone", ALL, (TIMEZONE, "America/St_Johns")),
    Kind("locale", "locale", ALL, (LOCALE,)),
    # A Harbor task owns its working folder, its home and the order of its files: they are part of
    # its image, and what they hold is what it was made to rely on.
    Kind("folder", "working folder", PROGRAMS, (FOLDER,)),
    Kind("home", "home folder", PROGRAMS, (HOME,)),
    Kind("user", "user name", ALL, ("someone",)),
    Kind("hostname", "host name", ALL, ("elsewhere",)),
    Kind("umask", "umask", PROGRAMS, (0o077, 0o002)),
    # What a task writes as one user and reads as another is right to break under 077.
    Kind("umask", "umask", frozenset({"task"}), (0o002,)),
    Kind("cpus", "CPU count", ALL, (1,)),
    Kind("order", "file order", frozenset({"scorer", "episode"}), ("reversed",)),
    Kind("noise", "unrelated variables", ALL, (NOISE,)),
    Kind("network", "network", ALL, (True,), screened=False),
    Kind("load", "load", ALL, (LOAD, 8)),
    Kind("manner", "opposite order of tests", frozenset({"task"}), ("reversed",)),
    Kind("manner", "opposite order of calls in one process", frozenset({"scorer"}), ("reversed",)),
    Kind("manner", "second call in one process", PROGRAMS, ("repeated",)),
    Kind("manner", "another instance beside it", frozenset({"episode"}), ("interleaved",)),
    Kind("manner", "call from a thread", PROGRAMS, ("thread",)),
    Kind("manner", "call from an asyncio executor", PROGRAMS, ("executor",), screened=False),
    Kind("manner", "call from a daemon process", PROGRAMS, ("daemon",), screened=False),
    Kind("manner", "many calls at once", frozenset({"function", "scorer"}), ("many",), False),
)
_USE = ("load", "manner")
Part = tuple[str, int | str | bool]
"""A field and the value it takes; several manners of one variation are parts of their own."""


@dataclass(frozen=True, slots=True)
class Props:
    """What this host can lend to a changed world.

    Attributes:
        clock: The library that shifts a clock; None where there is none.
        locale: Folder with compiled locales; None where the world's own must do.
        cpus: CPUs that we may use ourselves.
        network: Whether the operator lets trials reach a network.
    """

    clock: Path | None = None
    locale: Path | None = None
    cpus: int = 2
    network: bool = False


def kinds_for(environment: Environment) -> tuple[Kind, ...]:
    """Return what can be changed around the trials of an environment."""
    return _kinds(environment.family, "file" in environment.entry)


@cache
def _kinds(family: Family, files: bool) -> tuple[Kind, ...]:
    return tuple(
        kind for kind in KINDS if family in kind.families and (files or kind.field != "order")
    )


def screens(environment: Environment) -> tuple[Variation, ...]:
    """Return the all-at-once combinations: the surroundings, then how it is used."""
    return _screens(kinds_for(environment))


@cache
def _screens(kinds: tuple[Kind, ...]) -> tuple[Variation, ...]:
    chosen = [kind for kind in kinds if kind.screened]
    parts = [(kind.field, kind.values[0]) for kind in chosen]
    around = assemble(part for part in parts if part[0] not in _USE)
    use = assemble(part for part in parts if part[0] in _USE)
    return around, use


def singles(environment: Environment) -> tuple[Variation, ...]:
    """Return every change that is tried alone."""
    return tuple(
        assemble([(kind.field, value)])
        for kind in kinds_for(environment)
        for value in kind.values
        if kind.field != "network"
    )


@lru_cache(maxsize=4096)
def parts_of(variation: Variation) -> tuple[Part, ...]:
    """Return what a variation changes, each manner for itself."""
    found: list[Part] = []
    for name, value in variation.changes().items():
        if name == "manner":
            found += [(name, word) for word in manners(variation)]
        else:
            found.append((name, value))
    return tuple(found)


def assemble(parts: Iterable[Part]) -> Variation:
    """Return the variation of some parts; several manners are joined."""
    values: dict[str, Any] = {}
    for name, value in parts:
        values[name] = f"{values[name]}+{value}" if name in values else value
    return replace(BASELINE, **values)


def manners(variation: Variation) -> tuple[str, ...]:
    """Return how the program calls, one word each."""
    return tuple(variation.manner.split("+")) if variation.manner else ()


def name_of(part: Part, family: Family = "scorer") -> str:
    """Return how messages name one change."""
    field, value = part
    kinds = sorted(
        (kind for kind in KINDS if kind.field == field),
        key=lambda kind: (value not in kind.values, family not in kind.families),
    )
    label = kinds[0].label if kinds else field.replace("_", " ")
    if field == "manner" or value is True:
        return label
    return f"{label} {value:03o}" if field == "umask" else f"{label} {value}"


def names_of(variation: Variation, family: Family = "scorer") -> str:
    """Return everything a variation changes, in words."""
    return ", ".join(name_of(part, family) for part in parts_of(variation)) or "nothing"


def check_variation(variation: Variation) -> None:
    """Refuse what no rule would ask for: a report is foreign text.

    Raises:
        InvalidInputError: A value is out of bounds or names nothing that is known.
    """
    if variation.clock:
        clock_shift_s(variation.clock)
    known = {value for kind in KINDS if kind.field == "manner" for value in kind.values}
    good = (
        all(0 <= getattr(variation, name) <= most for name, most in _MOST.items())
        and all(_NAME.fullmatch(getattr(variation, name)) for name in _NAMES)
        and all(not path or path in {FOLDER, HOME} for path in (variation.folder, variation.home))
        and variation.order in {"", "reversed"}
        and known.issuperset(manners(variation))
    )
    if not good:
        raise InvalidInputError("variation.unknown", "No rule changes a trial in this way.")


def clock_shift_s(clock: str, today: datetime | None = None) -> int:
    """Return how many seconds a clock runs ahead; negative for behind.

    A date without a time of day keeps the present one, so that every process of a trial, however
    late it starts, has the same shift.

    Args:
        clock: ``+365d``, ``@2032-02-29`` or ``@2032-02-29 23:59:50``.
        today: The present, with its zone; now where it is left out.

    Raises:
        InvalidInputError: It is none of these.
    """
    if match := _SHIFT.fullmatch(clock):
        return int(match[1] + match[2]) * DAY_S
    now = (today or datetime.now(UTC)).astimezone(UTC)
    if match := _DATE.fullmatch(clock):
        try:
            wanted = datetime.fromisoformat(f"{match[1]}T{match[2] or '00:00:00'}+00:00")
        except ValueError:
            wanted = None
        if wanted is not None:
            if match[2]:
                return round((wanted - now).total_seconds())
            return (wanted.date() - now.date()).days * DAY_S
    raise InvalidInputError(
        "variation.clock", f"{clock!a} is no clock.", "Say +365d, @2032-02-29 or a date with time."
    )


def change_command(command: Command, variation: Variation, family: Family, props: Props) -> Command:
    """Return a command in its changed world, but for what :func:`refused_changes` names.

    Raises:
        InvalidInputError: The variation has a clock that is none.
    """
    refused = refused_changes(variation, props)
    wanted = {name: value for name, value in variation.changes().items() if name not in refused}
    factor = patience(variation)
    limits = replace(
        command.limits,
        wall_s=command.limits.wall_s * factor,
        cpu_s=int(command.limits.cpu_s * factor),
    )
    return replace(
        command,
        env={**command.env, **_variables(wanted, variation, family, props)},
        mounts=tuple(_mounts(command.mounts, wanted, props)),
        cwd=variation.folder or command.cwd,
        hostname=variation.hostname or command.hostname,
        umask=variation.umask,
        cpus=int(wanted.get("cpus", 0)),
        network=bool(wanted.get("network", False)),
        limits=limits,
    )


def _variables(
    wanted: Mapping[str, Any], variation: Variation, family: Family, props: Props
) -> dict[str, str]:
    env: dict[str, str] = {}
    for name, put in _VARIABLES.items():
        if name in wanted:
            env |= put(wanted[name])
    if "clock" in wanted:
        shift = clock_environment(clock_shift_s(variation.clock))
        if family == "task":
            # The shell of a foreign image may not be able to load it: the program tries first.
            env |= {"QH_CLOCK": shift["FAKETIME"], "QH_CLOCK_LIBRARY": CLOCK_TARGET}
        else:
            env |= {**shift, "LD_PRELOAD": CLOCK_TARGET}
    if "locale" in wanted and props.locale is not None:
        env["LOCPATH"] = LOCALE_TARGET
    return {**env, **_task_words(variation)} if family == "task" else env


def _mounts(mounts: Iterable[Mount], wanted: Mapping[str, Any], props: Props) -> Iterable[Mount]:
    yield from (_moved(mount) if "order" in wanted else mount for mount in mounts)
    if "order" in wanted:
        yield Mount(ENVIRONMENT, mode="scratch")
    if "clock" in wanted and props.clock is not None:
        yield Mount(CLOCK_TARGET, props.clock)
    if "locale" in wanted and props.locale is not None:
        yield Mount(LOCALE_TARGET, props.locale)
    for name in ("folder", "home"):
        if name in wanted:
            yield Mount(str(wanted[name]), mode="scratch")


def payload_words(variation: Variation, refused: Mapping[str, str], now_s: float) -> dict[str, Any]:
    """Return what an in-sandbox program is told; empty where it has nothing to do or to check.

    Args:
        variation: What is changed.
        refused: See :func:`refused_changes`.
        now_s: True seconds since the epoch, for the check of a shifted clock.
    """
    changes = {
        name: value
        for name, value in variation.changes().items()
        if name not in {"hash_seed", "seed", *refused}
    }
    if not changes:
        return {}
    words: dict[str, Any] = {"changes": changes, "patience": patience(variation), "now": now_s}
    if "clock" in changes:
        words["shift"] = clock_shift_s(variation.clock)
    if "manner" in changes:
        words["changes"] = {**changes, "manner": list(manners(variation))}
    return words


def patience(variation: Variation) -> float:
    """Return how much longer than usual a changed trial may take: what is slow is not wrong."""
    called = manners(variation)
    factor = 1.0 + variation.load / 2
    if variation.cpus:
        factor *= 2
    if "many" in called:
        factor *= _MANY_PATIENCE
    factor *= 1 + len({"repeated", "interleaved"}.intersection(called))
    return min(factor, _MOST_PATIENCE)


def refused_changes(variation: Variation, props: Props) -> dict[str, str]:
    """Return what this host cannot change, with the reason."""
    refused = {}
    if variation.clock and props.clock is None:
        refused["clock"] = "libfaketime for this machine is not installed here"
    if variation.cpus and variation.cpus >= props.cpus:
        refused["cpus"] = f"this host gives its trials {props.cpus} CPU in all"
    if variation.network and not props.network:
        refused["network"] = "the operator lets no trial reach a network"
    return refused


def _moved(mount: Mount) -> Mount:
    return replace(mount, target=ORIGIN, mode="ro") if mount.target == ENVIRONMENT else mount


def _task_words(variation: Variation) -> dict[str, str]:
    """Return what the task program is told; its shell has no JSON."""
    told = {name: value for name, value in variation.changes().items() if name in _TASK_WORDS}
    words = {f"QH_{name.upper()}": str(value) for name, value in told.items()}
    return {**words, "QH_VARIED": "1"} if variation.changes().keys() - {"hash_seed"} else words


_TASK_WORDS = ("load", "manner")
_VARIABLES: Mapping[str, Callable[[Any], dict[str, str]]] = {
    "timezone": lambda value: {"TZ": value},
    "locale": lambda value: {"LANG": value, "LC_ALL": value},
    "home": lambda value: {"HOME": value},
    "user": lambda value: {"USER": value, "LOGNAME": value},
    # What Python 3.13 and later believe; before, os.cpu_count() counts the host's.
    "cpus": lambda value: {"PYTHON_CPU_COUNT": str(value)},
    "noise": lambda value: {f"UNRELATED_{number:03d}": "x" * number for number in range(value)},
}
