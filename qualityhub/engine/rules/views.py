"""How rules speak of observations: one place for the words and the comparisons."""

from __future__ import annotations

from typing import Any

from qualityhub.engine.environments.model import Family, Task
from qualityhub.engine.rules.model import Context, Unmeasured
from qualityhub.engine.trials.model import BASELINE, Ask, Observation, Variation
from qualityhub.engine.trials.probes import NOP, ORACLE, TRACE

ALL_FAMILIES: frozenset[Family] = frozenset({"function", "scorer", "episode", "task"})
WITH_REFERENCE: frozenset[Family] = frozenset({"function", "scorer", "task"})
HASH_SEEDS = (1, 2, 3)
"""Values of PYTHONHASHSEED tried beside the baseline's 0."""
CONFIRMATIONS = 3
"""Further runs of both sides before a difference is blamed on what was changed."""
EPISODES: frozenset[Family] = frozenset({"episode"})


def main_probe(context: Context) -> str:
    """Return the probe whose behaviour stands for the environment."""
    return TRACE if context.environment.family == "episode" else ORACLE


def stability_probes(context: Context) -> tuple[str, ...]:
    """Return the probes that determinism is judged on."""
    match context.environment.family:
        case "episode":
            return (TRACE,)
        case "scorer":
            return (ORACLE, NOP, "malformed:words")
        case _:
            return (ORACLE,)


def number(observation: Observation) -> float | None:
    """Return the reward when it is a finite number."""
    if observation.outcome == "reward" and isinstance(observation.reward, float | int):
        return float(observation.reward)
    return None


def gives_reward(context: Context, ask: Ask) -> bool:
    """Say whether an ask is answered with any reward."""
    seen = context.see(ask)
    return seen is not None and seen.outcome == "reward"


def describe(observation: Observation) -> str:
    """Say in a few words what was seen.

    Messages leave the hub; what foreign code printed may quote an answer key, so it stays in the
    evidence and only the kind of an exception is named here.
    """
    match observation.outcome:
        case "reward":
            return f"reward {shown_reward(observation)}"
        case "crashed":
            return str(observation.facts.get("error", "an exception"))
        case "timeout":
            return "no result in time"
        case "killed":
            number = observation.facts.get("signal")
            return f"ended by signal {number}" if number else "ended by a limit"
        case _:
            return "no reward"


def shown_reward(observation: Observation) -> str:
    """Print a reward for a message; what is no number may quote an answer key: its type alone."""
    if observation.reward_type in {"number", "bool"}:
        return show(observation.reward)
    return f"of type {observation.reward_type}"


def show(reward: object) -> str:
    """Print a reward as a person would write it."""
    return f"{reward:g}" if isinstance(reward, float) else str(reward)


def seen_evidence(observation: Observation) -> dict[str, Any]:
    """Return what evidence says of an observation."""
    evidence: dict[str, Any] = {"outcome": observation.outcome}
    if observation.outcome == "reward":
        if observation.reward_type in {"number", "bool"}:
            evidence["reward"] = observation.reward
        else:
            # Under a key that exports leave out: it may hold the answer.
            evidence["reward_type"] = observation.reward_type
            evidence["output"] = observation.reward
    if observation.detail:
        evidence["detail"] = observation.detail
    if observation.trial:
        evidence["trial"] = observation.trial
    return evidence


def answer_key(context: Context, task: Task) -> dict[str, Any]:
    """Return the reference of a task for evidence; exports drop the key."""
    for name in ("correct", "answer", "canonical_solution"):
        if name in task.data:
            return {"answer_key": str(task.data[name])[:2000]}
    seen = context.see(Ask(task.id, ORACLE))
    if seen is not None and "answer" in seen.facts:
        return {"answer_key": seen.facts["answer"]}
    return {}


def outcome_key(observation: Observation) -> tuple[str, object]:
    """Return what two runs of the same ask must agree on."""
    if observation.outcome == "reward":
        return ("reward", observation.reward)
    if observation.outcome == "crashed":
        return ("crashed", observation.facts.get("error"))
    return (observation.outcome, None)


def first_difference(left: Observation, right: Observation) -> dict[str, Any] | None:
    """Return how two observations of one ask differ, or None where they agree.

    A time-out on one side is load, not evidence: it never counts as a difference.
    """
    if "timeout" in {left.outcome, right.outcome}:
        return None
    left_row, right_row = left.facts.get("row"), right.facts.get("row")
    if left_row != right_row:
        return {
            "what": "generated row",
            "first": left.facts.get("prompt", left_row),
            "then": right.facts.get("prompt", right_row),
        }
    left_trace, right_trace = left.facts.get("trace"), right.facts.get("trace")
    if left_trace is not None and right_trace is not None and left_trace != right_trace:
        step = next(
            (
                index
                for index, (a, b) in enumerate(zip(left_trace, right_trace, strict=False))
                if a != b
            ),
            min(len(left_trace), len(right_trace)),
        )
        return {
            "what": "trace",
            "step": step,
            "first": left_trace[step : step + 1],
            "then": right_trace[step : step + 1],
        }
    if outcome_key(left) != outcome_key(right):
        return {"what": "reward", "first": describe(left), "then": describe(right)}
    return None


def runs_by_variation(context: Context, task: Task, probe: str) -> dict[Variation, list[Ask]]:
    """Return every answered ask of a probe, grouped by what was changed around it.

    Runs within a group differ in nothing that we control.
    """
    groups: dict[Variation, list[Ask]] = {}
    for variation in (BASELINE, *(Variation(hash_seed=seed) for seed in HASH_SEEDS)):
        repeat = 0
        while context.see(ask := Ask(task.id, probe, variation, repeat)) is not None:
            groups.setdefault(variation, []).append(ask)
            repeat += 1
    return groups


def blamed_task(task: Task, seen: Observation) -> str | None:
    """Return the task a finding is about; None where nothing of the environment even loads."""
    return None if seen.facts.get("stage") == "load" else task.id


def does_not_load(context: Context, seen: Observation) -> str:
    """Return the sentence for an environment that does not load, or an empty string.

    What a public package says of a name it does not know is no secret of an owner's.
    """
    if seen.facts.get("stage") != "load":
        return ""
    words = str(seen.facts.get("message", "")) if context.environment.root is None else ""
    said = f": {words}" if words else ""
    return f"{context.environment.name} does not load; it raises {describe(seen)}{said}."


def lacks_module(seen: Observation) -> Unmeasured | None:
    """Return that nothing else can be judged where a module is missing; DEP002 reports it, once."""
    module = seen.facts.get("missing_module")
    return Unmeasured(f"the module {module!r} is missing", "that dependency") if module else None
