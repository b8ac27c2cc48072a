"""VER005."""

from __future__ import annotations

from collections.abc import Iterable

from qualityhub.engine.environments.model import Task
from qualityhub.engine.rules.model import Context, Found, Page, Rule, Unmeasured
from qualityhub.engine.rules.views import (
    EPISODES,
    blamed_task,
    describe,
    does_not_load,
    lacks_module,
    seen_evidence,
)
from qualityhub.engine.trials.model import Ask
from qualityhub.engine.trials.probes import TRACE


class EpisodeFails(Rule):
    """An ordinary episode does not run."""

    code = "VER005"
    title = "Environment fails in an ordinary episode"
    cost = "behaviour"
    families = EPISODES
    page = Page(
        what=(
            "Builds the environment, resets it with a seed and takes hundreds of sampled actions, "
            "resetting at every episode end. Without an `action_space` that has `sample()` there "
            "is no episode. A time-out is confirmed by a second run."
        ),
        why="An environment that raises in the middle of an episode ends the worker that runs it.",
        example="`step` indexes past the end of its map after 200 steps.",
        fix="Run the printed command; the evidence ends with the exception and its line.",
    )

    def measures(self) -> str:
        """Say what a pass claims."""
        return "a trace of sampled actions runs to its end"

    def asks(self, context: Context, task: Task) -> Iterable[Ask]:
        """Ask for a trace; again where the first run timed out."""
        first = Ask(task.id, TRACE)
        yield first
        seen = context.see(first)
        if seen is not None and seen.outcome == "timeout":
            yield Ask(task.id, TRACE, repeat=1)

    def check_task(self, context: Context, task: Task) -> Iterable[Found | Unmeasured]:
        """Report a trace that did not run to its end."""
        asks = tuple(self.asks(context, task))
        seen = context.known(asks[-1])
        if seen.outcome == "reward":
            return
        if lacking := lacks_module(seen):
            yield lacking
            return
        if seen.facts.get("stage") == "actions":
            # An environment decides this about itself: to leave it unmeasured would let any one
            # that fails choose to wait instead.
            yield Found(
                message="It has no action_space with sample(): no action can be drawn for it.",
                ground="no action space",
                task=task.id,
                evidence={"expected": "a trace", "seen": seen_evidence(seen)},
                asks=asks,
            )
            return
        yield Found(
            message=does_not_load(context, seen)
            or f"A trace of sampled actions should run to its end; seen: {describe(seen)}.",
            ground=f"trace {seen.outcome} {seen.facts.get('error', '')}".strip(),
            task=blamed_task(task, seen),
            evidence={"expected": "a trace", "seen": seen_evidence(seen)},
            asks=asks,
        )


RULE = EpisodeFails()
