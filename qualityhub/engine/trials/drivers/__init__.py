"""One driver per family: asks in, trials out; program output in, observations out.

Drivers are pure: they never touch files or processes.
"""

from __future__ import annotations

from collections.abc import Iterable

from qualityhub.engine.environments.model import Environment
from qualityhub.engine.trials.drivers.base import Driver
from qualityhub.engine.trials.drivers.episode import EpisodeDriver
from qualityhub.engine.trials.drivers.function import FunctionDriver
from qualityhub.engine.trials.drivers.scorer import ScorerDriver
from qualityhub.engine.trials.drivers.task import TaskDriver
from qualityhub.engine.trials.model import Ask, Trial

DRIVERS: dict[str, Driver] = {
    "function": FunctionDriver(),
    "scorer": ScorerDriver(),
    "episode": EpisodeDriver(),
    "task": TaskDriver(),
}


def plan_trials(
    environment: Environment,
    worlds: dict[str, str],
    asks: Iterable[Ask],
    generation: int = 0,
) -> list[Trial]:
    """Cut asks into trials.

    Args:
        environment: The environment the asks are about.
        worlds: World digest by task id; the key ``""`` serves every task that has no own world.
        asks: What is still unknown; order does not matter.
        generation: Part of every key; an audit raises it.

    Returns:
        Trials in a stable order; together they answer every ask exactly once.
    """
    driver = DRIVERS[environment.family]
    return driver.plan(environment, worlds, sorted(set(asks)), generation)
