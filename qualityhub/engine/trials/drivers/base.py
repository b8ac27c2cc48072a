"""What a family's driver is, and the answer lines three of them share."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from qualityhub.engine.environments.model import Environment
from qualityhub.engine.errors import MachineryError
from qualityhub.engine.sandbox.port import Completed
from qualityhub.engine.trials.model import Ask, Observation, Trial

DETAIL = 2000
OUTCOMES = frozenset(
    {"reward", "no_reward", "crashed", "timeout", "killed", "no_reference", "unmeasured"}
)
OUR_FAILURE = 71
"""Exit status by which a program of ours says that it failed itself."""


class Driver(ABC):
    """Cuts asks into trials and reads their results."""

    @abstractmethod
    def plan(
        self,
        environment: Environment,
        worlds: Mapping[str, str],
        asks: Sequence[Ask],
        generation: int,
    ) -> list[Trial]:
        """Return trials that answer every ask exactly once."""

    @abstractmethod
    def observe(self, trial: Trial, completed: Completed, nonce: str) -> tuple[Observation, ...]:
        """Return one observation per ask of the trial, in order.

        Raises:
            MachineryError: Our own program failed.
        """


def world_of(worlds: Mapping[str, str], task: str) -> str:
    """Return the world digest of a task."""
    return worlds.get(task) or worlds[""]


def read_answers(trial: Trial, completed: Completed, nonce: str) -> tuple[Observation, ...]:
    """Read the answer lines of the Python programs.

    A line that does not carry the nonce is not ours. An ask without an answer died with the
    program: by the wall clock, a limit, or by leaving early.

    Raises:
        MachineryError: The program could not start or failed by its own fault.
    """
    if completed.exit_code in {126, 127, OUR_FAILURE} and not completed.timed_out:
        raise MachineryError(
            "trial.program_failed",
            f"The {trial.program} program ended with status {completed.exit_code}: "
            f"{tail(completed.stderr)}",
            "This is a fault of ours or of this host; it says nothing about the environment.",
        )
    answers: dict[int, dict[str, Any]] = {}
    for line in completed.stdout.splitlines():
        mark, _, body = line.partition(b" ")
        if mark != nonce.encode():
            continue
        try:
            document = json.loads(body)
        except ValueError:
            continue
        case = document.get("case")
        if isinstance(case, int) and case not in answers:
            answers[case] = document
    return tuple(
        observation(answers[index], trial.key) if index in answers else died(completed, trial.key)
        for index in range(len(trial.asks))
    )


def observation(document: Mapping[str, Any], trial: str) -> Observation:
    """Build an observation from a program's answer; unknown fields become facts."""
    outcome = document.get("outcome")
    facts = dict(document.get("facts") or {})
    for name in ("missing_module", "error", "message", "stage", "exit_code", "signal"):
        if name in document:
            facts[name] = document[name]
    return Observation(
        outcome=outcome if outcome in OUTCOMES else "no_reward",
        reward=document.get("reward"),
        reward_type=str(document.get("reward_type", "number")),
        detail=str(document.get("detail", ""))[-DETAIL:],
        facts=facts,
        trial=trial,
    )


def died(completed: Completed, trial: str) -> Observation:
    """Describe an ask that the program did not live to answer."""
    if completed.timed_out:
        return Observation("timeout", detail="the trial's time ran out", trial=trial)
    if completed.out_of_memory:
        return Observation("killed", detail="the memory limit ended it", trial=trial)
    if completed.signal is not None:
        return Observation("killed", detail=f"ended by signal {completed.signal}", trial=trial)
    return Observation(
        "no_reward",
        detail=f"left with status {completed.exit_code} before an answer: {tail(completed.stderr)}",
        trial=trial,
    )


def tail(data: bytes, size: int = 1500) -> str:
    """Return the end of foreign output as text."""
    return data[-size:].decode("utf-8", "replace").replace("\x00", "\N{SYMBOL FOR NULL}")
