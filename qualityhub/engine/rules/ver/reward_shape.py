"""VER003."""

from __future__ import annotations

from collections.abc import Iterable

from qualityhub.engine.environments.model import Task
from qualityhub.engine.rules.model import Context, Found, Page, Rule, Unmeasured
from qualityhub.engine.rules.views import ALL_FAMILIES, gives_reward, seen_evidence, show
from qualityhub.engine.trials.model import Ask, Observation
from qualityhub.engine.trials.probes import MALFORMED, MALFORMED_PREFIX, NOP, ORACLE, TRACE


class RewardShape(Rule):
    """A reward is not a finite number, or lies outside its declared range."""

    code = "VER003"
    title = "Reward is not a finite number in range"
    cost = "behaviour"
    families = ALL_FAMILIES
    page = Page(
        what=(
            "Looks at every reward seen (reference, no work, malformed answers, every step of a "
            "trace): a finite number, inside `reward.range` where the owner declared one."
        ),
        why=(
            "One NaN turns the whole batch's gradient into NaN. A reward outside its range makes "
            "one environment outweigh the others in joint training."
        ),
        example="`return None` for an answer that does not parse; `0.0 * float('inf')`.",
        fix="Return a float in the declared range for every answer; declare `reward.range`.",
    )

    def measures(self) -> str:
        """Say what a pass claims."""
        return "every reward seen is a finite number in range"

    def asks(self, context: Context, task: Task) -> Iterable[Ask]:
        """Ask for what others ask for anyway."""
        match context.environment.family:
            case "episode":
                first = Ask(task.id, TRACE)
                yield first
                seen = context.see(first)
                if seen is not None and seen.outcome == "timeout":
                    yield Ask(task.id, TRACE, repeat=1)
            case "scorer":
                yield Ask(task.id, ORACLE)
                yield Ask(task.id, NOP)
                if context.policy.effort != "quick":
                    for name in MALFORMED:
                        yield Ask(task.id, MALFORMED_PREFIX + name)
            case _:
                yield Ask(task.id, ORACLE)
                yield Ask(task.id, NOP)

    def check_task(self, context: Context, task: Task) -> Iterable[Found | Unmeasured]:
        """Report the first reward of each kind of fault."""
        reported: set[str] = set()
        asks = tuple(self.asks(context, task))
        if not any(gives_reward(context, ask) for ask in asks):
            yield Unmeasured("no reward was seen", "a run that ends with a reward")
        for ask in asks:
            seen = context.known(ask)
            for ground, words, declared in _faults(context, seen):
                if ground in reported:
                    continue
                reported.add(ground)
                yield Found(
                    message=f"{words} (probe {ask.probe}).",
                    ground=ground,
                    task=task.id,
                    evidence={
                        "expected": "a finite number in range",
                        "seen": seen_evidence(seen),
                        "probe": ask.probe,
                    },
                    asks=(ask,),
                    severity=None if declared else "warning",
                )


def _faults(context: Context, seen: Observation) -> Iterable[tuple[str, str, bool]]:
    """Yield (ground, sentence, whether the owner declared what it contradicts)."""
    if seen.outcome != "reward":
        return
    odd = seen.facts.get("odd_rewards")
    if odd:
        step, value, kind = odd[0]
        yield (
            f"reward is {kind} {_class(value)}",
            f"Step {step} gives {_value(value)} of type {kind}",
            True,
        )
    elif not isinstance(seen.reward, float | int):
        if seen.reward_type == "number":
            yield "reward is not finite", f"The reward is {seen.reward}, not a finite number", True
        else:
            yield (
                f"reward is {seen.reward_type}",
                f"The reward is of type {seen.reward_type}, not a number",
                True,
            )
        return
    spec = context.environment.reward
    lowest = seen.facts.get("lowest", seen.reward)
    highest = seen.facts.get("highest", seen.reward)
    if spec.low is not None and lowest is not None and lowest < spec.low:
        yield (
            "reward below range",
            f"The reward {show(float(lowest))} lies below {_range(context)}",
            spec.declared,
        )
    if spec.high is not None and highest is not None and highest > spec.high:
        yield (
            "reward above range",
            f"The reward {show(float(highest))} lies above {_range(context)}",
            spec.declared,
        )


def _value(value: object) -> str:
    return f"the reward {value}" if _class(value) == "not finite" else "a reward"


def _class(value: object) -> str:
    return "not finite" if value in {"nan", "inf", "-inf", "overflow"} else "not a number"


def _range(context: Context) -> str:
    spec = context.environment.reward
    low = "-inf" if spec.low is None else show(float(spec.low))
    high = "inf" if spec.high is None else show(float(spec.high))
    return f"the {'declared' if spec.declared else 'usual'} range [{low}, {high}]"


RULE = RewardShape()
