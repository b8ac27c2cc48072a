"""What an environment says about where it can be prepared and run, from its files alone."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qualityhub.engine.environments.model import Environment, Task

_GPU = re.compile(r"(gpu|cuda|rocm)(:\d+)?", re.IGNORECASE)
_MOST = 2**31 - 1


def placement_of(environment: Environment) -> dict[str, Any]:
    """Return what the whole environment asks of a host; members that ask nothing are left out.

    ``image``: some task has an image of its own. ``python``: version specifier. ``gpus``: so many
    at least. ``labels``: of the worker, as declared.
    """
    asked = {
        "image": any(
            task.data.get("dockerfile") or task.data.get("docker_image")
            for task in environment.tasks
            if environment.family == "task"
        ),
        "python": environment.dependencies.python or "",
        "gpus": gpus_of(environment),
        "labels": {
            str(name): str(value) for name, value in environment.entry.get("labels", {}).items()
        },
    }
    return {name: value for name, value in asked.items() if value}


def gpus_of(environment: Environment) -> int:
    """Return how many GPUs the declared devices are."""
    devices = environment.entry.get("devices", ())
    return len({str(item).lower() for item in devices if _GPU.fullmatch(str(item))})


def task_size(environment: Environment, task: Task) -> dict[str, int]:
    """Return ``memory_mib``, ``cpus`` and ``gpus`` that one task declares, 0 where it does not."""
    if environment.family != "task":  # Rows of other families are data, not declarations.
        return {"memory_mib": 0, "cpus": 0, "gpus": 0}
    return {
        "memory_mib": _count(task.data.get("memory_mb")),
        "cpus": _count(task.data.get("cpus")),
        "gpus": _count(task.data.get("gpus")),
    }


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value:  # noqa: PLR0124 - NaN.
        return 0
    return int(min(max(value, 0), _MOST))
