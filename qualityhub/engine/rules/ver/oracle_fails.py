"""VER001."""

from __future__ import annotations

from collections.abc import Iterable

from qualityhub.engine.environments.model import Task
from qualityhub.engine.rules.model import Context, Found, Page, Rule, Unmeasured
from qualityhub.engine.rules.views import (
    WITH_REFERENCE,
    answer_key,
    blamed_task,
    describe,
    does_not_load,
    lacks_module,
    number,
    seen_evidence,
    show,
)
from qualityhub.engine.trials.model import Ask
from qualityhub.engine.trials.probes import ORACLE


class OracleFails(Rule):
    """The reference does not earn the reward of a success."""

    code = "VER001"
    title = "Reference solution is not accepted"
    cost = "behaviour"
    families = WITH_REFERENCE
    page = Page(
        what=(
            "Submits the reference in a fresh world and expects a reward at or above "
            "`reward.success`. A time-out is confirmed by a second run before it counts."
        ),
        why=(
            "A task whose own answer fails cannot be solved. The policy is punished for right "
            "work, and the domain's pass rate measures the fault."
        ),
        example="`answer` is `0.5` while the scorer compares text with `1/2`.",
        fix=(
            "Run the printed command, read the verifier's output in the evidence, and correct "
            "whichever of reference, tests or image is wrong."
        ),
    )

    def measures(self) -> str:
        """Say what a pass claims."""
        return "the reference earns the reward of a success"

    def asks(self, context: Context, task: Task) -> Iterable[Ask]:
        """Ask for the reference; again where the first run timed out."""
        first = Ask(task.id, ORACLE)
        yield first
        seen = context.see(first)
        if seen is not None and seen.outcome == "timeout":
            yield Ask(task.id, ORACLE, repeat=1)

    def check_task(self, context: Context, task: Task) -> Iterable[Found | Unmeasured]:
        """Compare the reference's reward with the reward of a success."""
        asks = tuple(self.asks(context, task))
        seen = context.known(asks[-1])
        if seen.outcome == "no_reference":
            yield Unmeasured(
                "there is no reference answer to submit", "a reference answer for the task"
            )
            return
        wanted = context.environment.reward.success - context.policy.oracle_tolerance
        got = number(seen)
        if got is not None and got >= wanted:
            return
        if lacking := lacks_module(seen):
            yield lacking
            return
        if seen.facts.get("offline"):
            yield Unmeasured(
                "it downloads while it runs, and trials have no network",
                "everything it needs built into the image",
            )
            return
        if seen.outcome == "reward" and got is None:
            return  # VER003 says what kind of reward that is.
        yield Found(
            message=does_not_load(context, seen)
            or f"The reference should earn at least {show(wanted)}; seen: {describe(seen)}.",
            ground="oracle below success" if got is not None else f"oracle {seen.outcome}",
            task=blamed_task(task, seen),
            evidence={
                "expected": f"reward >= {show(wanted)}",
                "seen": seen_evidence(seen),
                **answer_key(context, task),
            },
            asks=asks,
        )


RULE = OracleFails()
