"""Gymnasium environments: ``gymnasium:ID``, and a class in a file."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from qualityhub.engine.digest import digest_environment, digest_json
from qualityhub.engine.environments.files import shown
from qualityhub.engine.environments.model import (
    Dependencies,
    Environment,
    Family,
    RewardSpec,
)
from qualityhub.engine.environments.package import (
    documentation_layer,
    environment_layer,
    make_environment,
    make_task,
    split_shared,
)
from qualityhub.engine.environments.python_source import (
    classes,
    methods,
    parse_python,
    signature,
    top_level_names,
)
from qualityhub.engine.errors import InvalidInputError, UnreadablePackageError

if TYPE_CHECKING:
    import ast
    from collections.abc import Mapping

    from qualityhub.engine.environments.package import Package

NAME = "gymnasium"
FAMILY: Family = "episode"
_ID = re.compile(r"(?:[\w-]+/)?[\w.-]+-v[0-9]+")
_UNBOUNDED = RewardSpec(low=None, high=None)
_EXTRAS = (
    (re.compile(r"(phys2d|tabular)/"), "jax"),
    (re.compile(r"(LunarLander|BipedalWalker|CarRacing)"), "box2d"),
    (
        re.compile(r"(Ant|HalfCheetah|Hopper|Humanoid|Walker2d|Swimmer|Reacher|Pusher|Inverted)"),
        "mujoco",
    ),
)


def detect(package: Package) -> str | None:
    """Return the class that was named, or the only one that has reset and step."""
    if package.target:
        return f"class {package.target}"
    if package.only.endswith(".py"):
        found = _candidates(package, package.only)
        return f"{package.only} defines {', '.join(found)}" if found else None
    entry, _, name = package.manifest.text("entry").partition(":")
    if entry.endswith(".py") and name and package.has(entry):
        known = classes(parse_python(package.text(entry), entry))
        return f"{entry} defines class {name}" if name in known else None
    return None


def read(package: Package) -> Environment:
    """Read one class of a Python file as an environment of one task.

    Raises:
        UnreadablePackageError: No such class, no reset or step, arguments nobody gives.
    """
    entry, name = _entry(package)
    kwargs = package.manifest.kwargs
    _check_class(package.text(entry), entry, name, kwargs)
    package.target = name
    dependencies, problems = package.dependencies(entry)
    shared, documentation = split_shared(package, leave_out=dependencies.sources)
    launched = {"file": entry, "name": name, "kwargs": kwargs}
    layers = {
        "statement": digest_json("statement", launched),
        "environment": environment_layer(
            package,
            dependencies,
            files=[[item.path, item.sha256, item.mode, item.target] for item in shared],
        ),
        **documentation_layer(documentation),
    }
    return make_environment(
        package,
        adapter=NAME,
        family=FAMILY,
        tasks=(make_task(name, layers, {}),),
        files=package.entries,
        shared=shared,
        dependencies=dependencies,
        entry=launched,
        reward=_UNBOUNDED,
        problems=problems,
    )


def read_named(name: str, options: Mapping[str, Any]) -> Environment:
    """Return the environment behind ``gymnasium:ID``; options are its keyword arguments.

    Raises:
        InvalidInputError: ``input.bad_name``.
    """
    if not _ID.fullmatch(name):
        raise InvalidInputError(
            "input.bad_name",
            f"{shown(name)!r} is no Gymnasium id.",
            "Ids look like CartPole-v1 or namespace/Name-v0.",
        )
    extra = next((extra for pattern, extra in _EXTRAS if pattern.match(name)), "")
    requirements: tuple[str, ...] = (f"gymnasium[{extra}]" if extra else "gymnasium",)
    if name.startswith("ALE/"):
        requirements = ("gymnasium", "ale-py")
    dependencies = Dependencies(requirements, (f"{NAME}:{name}",), self_declared=True)
    entry = {"module": "gymnasium", "id": name, "kwargs": dict(options)}
    layers = {
        "statement": digest_json("statement", entry),
        "environment": environment_layer(None, dependencies),
    }
    task = make_task(name, layers, {})
    shared = digest_json("shared", entry)
    return Environment(
        name=name,
        adapter=NAME,
        family=FAMILY,
        digest=digest_environment(shared, {task.id: task.digest}),
        tasks=(task,),
        entry=entry,
        shared=shared,
        dependencies=dependencies,
        reward=_UNBOUNDED,
    )


def _entry(package: Package) -> tuple[str, str]:
    if package.only.endswith(".py"):
        if package.target:
            return package.only, package.target
        found = _candidates(package, package.only)
        if len(found) > 1:
            raise UnreadablePackageError(
                "package.ambiguous",
                f"{shown(package.only)} defines several environments: {', '.join(found)}.",
                f"Name one: {shown(package.only)}:{found[0]}.",
            )
        if found:
            return package.only, found[0]
    entry, _, name = package.manifest.text("entry").partition(":")
    if entry.endswith(".py") and name:
        return entry, name
    raise UnreadablePackageError(
        "package.missing_entry",
        "There is no environment class to load.",
        'Name it: path/to/file.py:ClassName, or entry = "file.py:ClassName" in qualityhub.toml.',
    )


def _candidates(package: Package, file: str) -> list[str]:
    known = classes(parse_python(package.text(file), file))
    return [
        name
        for name, node in known.items()
        if {"reset", "step"} <= methods(node, known)[0].keys() and not name.startswith("_")
    ]


def _check_class(source: str, entry: str, name: str, kwargs: Mapping[str, Any]) -> None:
    module = parse_python(source, entry)
    known = classes(module)
    node = known.get(name)
    if node is None:
        if name in top_level_names(module):
            return  # Imported or assigned: what it is shows when it runs.
        have = f"Classes there: {', '.join(known)}." if known else "It defines no class."
        raise UnreadablePackageError(
            "package.missing_entry", f"{shown(entry)} has no class {shown(name)}.", have
        )
    place = f"{entry}:{node.lineno}"
    found, foreign = methods(node, known)
    missing = [method for method in ("reset", "step") if method not in found]
    if missing and not foreign:
        raise UnreadablePackageError(
            "package.missing_entry",
            f"{shown(place)}: {name} has no {' and no '.join(missing)}.",
            "An environment has reset(seed=None, options=None) and step(action).",
        )
    _check_constructor(found.get("__init__"), place, name, kwargs)


def _check_constructor(
    function: ast.FunctionDef | ast.AsyncFunctionDef | None,
    place: str,
    name: str,
    kwargs: Mapping[str, Any],
) -> None:
    if function is None:
        return
    takes = signature(function)
    wanted = (*takes.positional[1 : takes.required], *takes.required_keywords)
    open_ones = [argument for argument in wanted if argument not in kwargs]
    if open_ones:
        raise UnreadablePackageError(
            "package.missing_entry",
            f"{shown(place)}: {name} cannot be made without {', '.join(open_ones)}.",
            "Give the arguments defaults, or name them in [environment] kwargs.",
        )
    strangers = [key for key in kwargs if key not in (*takes.positional[1:], *takes.keywords)]
    if strangers and not takes.any_keyword:
        raise UnreadablePackageError(
            "package.missing_entry",
            f"{shown(place)}: {name} does not take {', '.join(map(shown, strangers))}.",
            "Correct [environment] kwargs in qualityhub.toml.",
        )
