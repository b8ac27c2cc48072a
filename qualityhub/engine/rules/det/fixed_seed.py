"""DET003."""

from __future__ import annotations

from collections.abc import Iterable

from qualityhub.engine.environments.model import Family, Task
from qualityhub.engine.rules.model import Context, Found, Page, Rule, Unmeasured
from qualityhub.engine.rules.views import describe, first_difference, main_probe, seen_evidence
from qualityhub.engine.trials.model import Ask

SEEDED: frozenset[Family] = frozenset({"episode", "scorer"})


class FixedSeed(Rule):
    """The same seed gives another episode, or another row."""

    code = "DET003"
    title = "Result differs although the seed is fixed"
    cost = "behaviour"
    from_effort = "standard"
    families = SEEDED
    page = Page(
        what=(
            "Replays one seed and one list of actions in separate processes for hundreds of steps, "
            "over episode ends, and compares every observation, reward and flag; for generated "
            "data sets, the row."
        ),
        why=(
            "Without it no rollout can be replayed, no failure reproduced, and two checkpoints "
            "never face the same task. An environment may be as random as it likes under its seed."
        ),
        example="`reset(seed)` seeds its own generator, `step` draws from the global `random`.",
        fix="Draw everything from the generator that `reset(seed=...)` seeds.",
    )

    def measures(self) -> str:
        """Say what a pass claims."""
        return "one seed gives one trace"

    def not_applicable(self, context: Context) -> str:
        """Rows from a file have no seed."""
        reason = super().not_applicable(context)
        scorer = context.environment.family == "scorer"
        if not reason and scorer and "file" in context.environment.entry:
            return "rows from a file have no seed"
        return reason

    def asks(self, context: Context, task: Task) -> Iterable[Ask]:
        """Ask for the seeded trace or row several times."""
        probe = main_probe(context)
        first = Ask(task.id, probe)
        yield first
        seen = context.see(first)
        if seen is not None and seen.outcome in {"reward", "no_reference"}:
            for repeat in range(1, max(2, context.policy.repeats[context.policy.effort])):
                yield Ask(task.id, probe, repeat=repeat)

    def check_task(self, context: Context, task: Task) -> Iterable[Found | Unmeasured]:
        """Report the first repeat that leaves the trace."""
        runs = list(self.asks(context, task))
        if len(runs) == 1:
            yield Unmeasured("nothing ran that could be replayed", "a run that ends")
        first = context.known(runs[0])
        for ask in runs[1:]:
            again = context.known(ask)
            difference = first_difference(first, again)
            if difference is None:
                continue
            if difference["what"] == "reward" and context.environment.family != "episode":
                continue  # DET001 says so.
            if not context.environment.seedable and self.code in context.policy.relax:
                yield Unmeasured("the owner declares that a seed does not fix it", blocks=False)
                return
            match difference["what"]:
                case "trace":
                    what = f"the trace differs from step {difference['step']} on"
                case "reward":
                    what = f"{describe(first)}, then {describe(again)}"
                case _:
                    what = "another row is generated"
            yield Found(
                message=f"Two runs with the same seed should agree; seen: {what}.",
                ground=f"{difference['what']} differs under one seed",
                task=task.id,
                evidence={
                    "expected": "equal results for equal seeds",
                    "seen": [seen_evidence(first), seen_evidence(again)],
                    "difference": difference,
                },
                asks=(runs[0], ask),
            )
            return


RULE = FixedSeed()
