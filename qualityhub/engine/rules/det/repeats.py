"""DET001."""

from __future__ import annotations

from collections.abc import Iterable

from qualityhub.engine.environments.model import Task
from qualityhub.engine.rules.model import Context, Found, Page, Rule, Unmeasured
from qualityhub.engine.rules.views import (
    WITH_REFERENCE,
    describe,
    first_difference,
    runs_by_variation,
    seen_evidence,
    stability_probes,
)
from qualityhub.engine.trials.model import Ask


class Repeats(Rule):
    """The same submission earns different rewards in runs that differ in nothing."""

    code = "DET001"
    title = "Reward differs between repeats"
    cost = "behaviour"
    from_effort = "standard"
    families = WITH_REFERENCE
    page = Page(
        what=(
            "Scores the same submission several times, each in its own process and world, with "
            "everything we control held fixed, and expects one reward."
        ),
        why=(
            "A reward that changes on its own is noise the policy is asked to learn. It also "
            "makes two checkpoints incomparable on the task."
        ),
        example="A scorer that samples ten of the hidden cases with `random.sample`.",
        fix="Seed every generator from the row, or check all cases; keep clocks out of the reward.",
    )

    def measures(self) -> str:
        """Say what a pass claims."""
        return "repeats of one submission earn one reward"

    def asks(self, context: Context, task: Task) -> Iterable[Ask]:
        """Ask for every probe once, and again for those that get a reward."""
        count = context.policy.repeats[context.policy.effort]
        for probe in stability_probes(context):
            first = Ask(task.id, probe)
            yield first
            seen = context.see(first)
            if seen is not None and seen.outcome == "reward":
                for repeat in range(1, count):
                    yield Ask(task.id, probe, repeat=repeat)

    def check_task(self, context: Context, task: Task) -> Iterable[Found | Unmeasured]:
        """Report the first probe whose repeats disagree."""
        repeated = False
        for probe in stability_probes(context):
            for runs in runs_by_variation(context, task, probe).values():
                repeated = repeated or len(runs) > 1
                found = _disagreement(context, task, probe, runs)
                if found is not None:
                    yield found
                    return
        if not repeated:
            yield Unmeasured("no submission earns a reward", "a run that ends with a reward")


def _disagreement(context: Context, task: Task, probe: str, runs: list[Ask]) -> Found | None:
    first = context.known(runs[0])
    for ask in runs[1:]:
        again = context.known(ask)
        difference = first_difference(first, again)
        if difference is None or difference["what"] == "generated row":
            continue
        return Found(
            message=(
                f"Two runs of {probe} should agree; seen: {describe(first)}, "
                f"then {describe(again)}."
            ),
            ground=f"{probe} repeats differ",
            task=task.id,
            evidence={
                "expected": "equal rewards",
                "seen": [seen_evidence(context.known(run)) for run in runs[:8]],
                "difference": difference,
                "runs": len(runs),
            },
            asks=tuple(runs[:8]),
        )
    return None


RULE = Repeats()
