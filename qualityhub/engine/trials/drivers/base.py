"""What a family's driver is, and the answer lines three of them share."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from qualityhub.engine.environments.model import Environment
from qualityhub.engine.errors import MachineryError
from qualityhub.engine.sandbox.port import Completed
from qualityhub.engine.trials.drivers.changes import with_changes
from qualityhub.engine.trials.model import Ask, Observation, Trial

DETAIL = 2000
OUTCOMES = frozenset(
    {"reward", "no_reward", "crashed", "timeout", "killed", "no_reference", "unmeasured"}
)
OUR_FAILURE = 71
"""Exit status by which a program of ours says that it failed itself."""
HANGS = 3
"""So many cases of a trial hang before a program leaves others out."""


def _is(*kinds: type) -> Callable[[object], bool]:
    return lambda value: isinstance(value, kinds)


def _list(value: object) -> bool:
    return isinstance(value, list) and all(_plain_one(item) for item in value)


def _plain_one(value: object) -> bool:
    # No store takes an integer of any size.
    return value is None or isinstance(value, str | float) or _is_int(value)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and abs(value) < 1 << 53


def _rows(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(row, list) and len(row) == 3 and _list(row) and isinstance(row[2], str)
        for row in value
    )


def _count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31


def _finite(value: object) -> bool:
    return value is None or (
        (isinstance(value, float) and math.isfinite(value))
        or (isinstance(value, int) and _is_int(value))
    )


FACTS: Mapping[str, Callable[[Any], bool]] = {
    "row": _is(str),
    "prompt": _is(str),
    "answer": _is(str),
    "trace": _list,
    "rewards": _list,
    "odd_rewards": _rows,
    "lowest": _finite,
    "highest": _finite,
    "steps": _count,
    "episodes": _count,
    "takes_seed": _is(bool),
    "distinct": _count,
}
"""What a program may say beside the reward, and the form that rules rely on."""


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


def read_answers(
    trial: Trial, completed: Completed, nonce: str, without_reference: Collection[int] = ()
) -> tuple[Observation, ...]:
    """Read the answer lines of the Python programs.

    A line that does not carry the nonce is not ours. An ask without an answer died with the
    program: by the wall clock, a limit, or by leaving early. That we failed is believed of a
    program that ended by saying so, and only while no foreign code shared its process.

    Args:
        trial: What was asked.
        completed: How the program ended and what it wrote.
        nonce: What marks its lines.
        without_reference: Places of the asks that may turn out to have no reference.

    Raises:
        MachineryError: The program could not start or failed by its own fault.
    """
    answers: dict[int, dict[str, Any]] = {}
    first: dict[str, Any] = {}
    started = False
    alone = True
    ours = completed.exit_code in {126, 127, OUR_FAILURE} and not completed.timed_out
    for line in completed.stdout.splitlines():
        mark, _, body = line.partition(b" ")
        if mark != nonce.encode():
            continue
        try:
            document = json.loads(body)
        except (ValueError, RecursionError):
            continue
        if not isinstance(document, dict):
            continue
        if not started:
            # Written before anything foreign ran.
            first = document
        started = True
        alone = alone and "foreign" not in document
        said = document.get("machinery")
        if "case" in document:
            case = document["case"]
            if _count(case) and case not in answers:
                answers[case] = document
        elif isinstance(said, str) and alone and ours and completed.exit_code == OUR_FAILURE:
            raise _program_failed(trial, completed, text(said)[-DETAIL:])
    _judged_by_us(answers, without_reference)
    # Once it runs, foreign code shares the process and can end with any status.
    if ours and not started:
        raise _program_failed(trial, completed, tail(completed.stderr))
    return tuple(
        with_changes(
            observation(answers[index], trial.key)
            if index in answers
            else died(completed, trial.key),
            trial.variation,
            first,
            answers.get(index, {}).get("escaped"),
        )
        for index in range(len(trial.asks))
    )


def _judged_by_us(
    answers: Mapping[int, dict[str, Any]], without_reference: Collection[int]
) -> None:
    """Take back what an answer may not decide: that there was nothing to judge.

    A case is left out only where as many hangs as it takes are told before it, and lacks a
    reference only where it may.
    """
    hung = 0
    for case in sorted(answers):
        outcome = answers[case].get("outcome")
        if outcome == "timeout":
            hung += 1
        elif (outcome == "unmeasured" and hung < HANGS) or (
            outcome == "no_reference" and case not in without_reference
        ):
            answers[case]["outcome"] = "no_reward"


def observation(document: Mapping[str, Any], trial: str) -> Observation:
    """Build an observation from a program's answer.

    The program shares a process with foreign code, so every value is taken only in the form and
    size that it should have.
    """
    outcome = document.get("outcome")
    given = document.get("facts")
    facts = {
        name: _plain(value)
        for name, value in (given.items() if isinstance(given, dict) else ())
        if name in FACTS and FACTS[name](value)
    }
    for name in ("missing_module", "error"):
        # They stand in messages, which leave the hub: names, never sentences.
        if str(document.get(name, "")).isidentifier():
            facts[name] = str(document[name])[:80]
    for name in ("message", "stage"):
        if name in document:
            facts[name] = text(document[name], 200)
    for name in ("exit_code", "signal"):
        if _count(document.get(name)):
            facts[name] = document[name]
    reward, kind = _reward(document.get("reward"), text(document.get("reward_type", "number"), 80))
    if not isinstance(outcome, str) or outcome not in OUTCOMES:
        outcome = "no_reward"
    return Observation(
        outcome="no_reward" if outcome == "reward" and reward is None else outcome,  # type: ignore[arg-type]  # one of OUTCOMES
        reward=reward,
        reward_type=kind,
        detail=text(document.get("detail", ""))[-DETAIL:],
        facts=facts,
        trial=trial,
    )


def text(value: object, size: int = 0) -> str:
    """Return foreign text that every store and encoding can hold, cut to ``size`` characters."""
    told = value if isinstance(value, str) else repr(value)
    told = told[:size] if size else told
    clean = told.encode("utf-8", "backslashreplace").decode()
    return clean.replace("\x00", "\N{SYMBOL FOR NULL}")


def _reward(value: object, kind: str) -> tuple[float | str | None, str]:
    if value is None or isinstance(value, str):
        return (None if value is None else text(value, 200)), kind
    if isinstance(value, bool):
        return float(value), "bool"
    if isinstance(value, int | float):
        try:
            number = float(value)
        except OverflowError:
            return "overflow", "number"
        return (number if math.isfinite(number) else repr(number)), kind
    return text(value, 200), type(value).__name__


def _plain(value: Any) -> Any:
    """Return JSON that a database takes: finite numbers, no NUL, no lone surrogate."""
    if isinstance(value, dict):
        return {text(key, 200): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, str):
        return text(value)
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    return value


def _program_failed(trial: Trial, completed: Completed, why: str) -> MachineryError:
    return MachineryError(
        "trial.program_failed",
        f"The {trial.program} program ended with status {completed.exit_code}: {why}",
        "This is a fault of ours or of this host; it says nothing about the environment.",
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
