"""Data sets of reasoning-gym: rows are made by its own code, inside the sandbox."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from qualityhub.engine.digest import digest_environment, digest_json
from qualityhub.engine.environments.files import shown
from qualityhub.engine.environments.model import Dependencies, Environment, Family
from qualityhub.engine.environments.package import environment_layer, make_task
from qualityhub.engine.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME = "reasoning-gym"
FAMILY: Family = "scorer"
DEFAULT_SIZE = 20
DEFAULT_SEED = 42
MAX_SIZE = 10_000
_NAME = re.compile(r"[a-z][a-z0-9_]{0,80}")


def read_named(name: str, options: Mapping[str, Any]) -> Environment:
    """Return the environment behind ``reasoning-gym:NAME?size=20&seed=42``.

    Options other than size and seed configure the data set.

    Raises:
        InvalidInputError: ``input.bad_name`` or ``input.wrong_type``.
    """
    if not _NAME.fullmatch(name):
        raise InvalidInputError(
            "input.bad_name",
            f"{shown(name)!r} is no name of a reasoning-gym data set.",
            "Names look like leg_counting.",
        )
    config = dict(options)
    size = _whole(config.pop("size", DEFAULT_SIZE), "size", 1, MAX_SIZE)
    seed = _whole(config.pop("seed", DEFAULT_SEED), "seed", 0, 2**31 - 1)
    dependencies = Dependencies(("reasoning-gym",), (f"{NAME}:{name}",), self_declared=True)
    entry = {
        "module": "reasoning_gym",
        "name": name,
        "seed": seed,
        "size": size,
        "config": config,
    }
    shared = digest_json("shared", entry)
    environment = environment_layer(None, dependencies)
    tasks = tuple(
        make_task(
            f"{name}/{index:04d}",
            {
                "statement": digest_json("statement", {**entry, "index": index}),
                "environment": environment,
                "verifier": digest_json("verifier", {"module": "reasoning_gym", "name": name}),
            },
            {"index": index},
        )
        for index in range(size)
    )
    return Environment(
        name=name,
        adapter=NAME,
        family=FAMILY,
        digest=digest_environment(shared, {task.id: task.digest for task in tasks}),
        tasks=tasks,
        entry=entry,
        shared=shared,
        dependencies=dependencies,
    )


def _whole(value: Any, key: str, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidInputError(
            "input.wrong_type",
            f"{key} must be a whole number from {low} to {high:,}.",
            f"Write for example ?{key}={max(low, 42)}.",
        )
    return value
