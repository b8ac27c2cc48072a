"""Code against tests: one trial per task, variation and repeat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from qualityhub.engine.environments.model import Environment
from qualityhub.engine.sandbox.port import Completed
from qualityhub.engine.trials.drivers.base import Driver, read_answers, world_of
from qualityhub.engine.trials.model import Ask, Observation, Trial, Variation
from qualityhub.engine.trials.probes import ORACLE

CASE_S = 15.0


class FunctionDriver(Driver):
    """Drives HumanEval-style rows."""

    def plan(
        self,
        environment: Environment,
        worlds: Mapping[str, str],
        asks: Sequence[Ask],
        generation: int,
    ) -> list[Trial]:
        """Return one trial per (task, variation, repeat), cold ones apart."""
        tasks = {task.id: task.data for task in environment.tasks}
        trials = []
        ordered = sorted(asks, key=lambda ask: (*_together(ask), ask.probe))
        for (task, variation, repeat, cold), group in groupby(ordered, key=_together):
            chosen = tuple(group)
            data = tasks[task]
            cases = [
                {
                    "prompt": data["prompt"],
                    "test": data["test"],
                    "entry_point": data["entry_point"],
                    "completion": data["canonical_solution"]
                    if ask.probe == ORACLE
                    else data.get("nop", "    pass\n"),
                }
                for ask in chosen
            ]
            trials.append(
                Trial(
                    program="function",
                    asks=chosen,
                    payload={"cases": cases, "case_timeout_s": CASE_S},
                    trees={},
                    variation=variation,
                    repeat=repeat,
                    cold=cold,
                    generation=generation,
                    world=world_of(worlds, task),
                    wall_s=10.0 + CASE_S * len(chosen),
                )
            )
        return trials

    def observe(self, trial: Trial, completed: Completed, nonce: str) -> tuple[Observation, ...]:
        """Read one answer line per case."""
        return read_answers(trial, completed, nonce)


def _together(ask: Ask) -> tuple[str, Variation, int, bool]:
    """Return what asks of one trial have in common."""
    return ask.task, ask.variation, ask.repeat, ask.cold
