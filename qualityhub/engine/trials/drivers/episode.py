"""reset/step environments: one trial per seed, variation and repeat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from qualityhub.engine.environments.model import Environment
from qualityhub.engine.sandbox.port import Completed
from qualityhub.engine.trials.drivers.base import Driver, read_answers, world_of
from qualityhub.engine.trials.model import Ask, Observation, Trial

STEPS = 300
CASE_S = 120.0


class EpisodeDriver(Driver):
    """Drives Gymnasium ids and environment classes."""

    def plan(
        self,
        environment: Environment,
        worlds: Mapping[str, str],
        asks: Sequence[Ask],
        generation: int,
    ) -> list[Trial]:
        """Return one trial per ask: every trace starts in a fresh process."""
        return [
            Trial(
                program="episode",
                asks=(ask,),
                payload={
                    "entry": dict(environment.entry),
                    "cases": [{"seed": ask.variation.seed, "steps": STEPS}],
                    "case_timeout_s": CASE_S,
                },
                trees={"/qh/env": environment.shared} if "file" in environment.entry else {},
                variation=ask.variation,
                repeat=ask.repeat,
                cold=ask.cold,
                generation=generation,
                world=world_of(worlds, ask.task),
                wall_s=CASE_S + 60.0,
            )
            for ask in asks
        ]

    def observe(self, trial: Trial, completed: Completed, nonce: str) -> tuple[Observation, ...]:
        """Read the one answer line."""
        return read_answers(trial, completed, nonce)
