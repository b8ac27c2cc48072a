"""DET002."""

from __future__ import annotations

from collections.abc import Iterable

from qualityhub.engine.environments.model import Task
from qualityhub.engine.rules.model import Context, Found, Page, Rule, Unmeasured
from qualityhub.engine.rules.views import (
    ALL_FAMILIES,
    describe,
    first_difference,
    seen_evidence,
    stability_probes,
)
from qualityhub.engine.trials.model import Ask, Variation

HASH_SEEDS = (1, 2, 3)


class HashSeed(Rule):
    """The result depends on the order in which a process happens to hash text."""

    code = "DET002"
    title = "Result differs with the hash seed"
    cost = "behaviour"
    from_effort = "standard"
    families = ALL_FAMILIES
    page = Page(
        what=(
            "Repeats the submission (or the seeded trace) under other values of PYTHONHASHSEED, "
            "one at a time, against a baseline that is stable without the change."
        ),
        why=(
            "Python draws a new hash seed for every process. What depends on it differs between "
            "two workers of one run, and no seed in the environment's code repairs it."
        ),
        example="`choices = set(options); return choices.pop() == completion`",
        fix="Sort sets before iterating or picking; never seed from `hash(text)`, use hashlib.",
    )

    def measures(self) -> str:
        """Say what a pass claims."""
        return f"{len(HASH_SEEDS)} other hash seeds give the same result"

    def asks(self, context: Context, task: Task) -> Iterable[Ask]:
        """Ask for two baseline runs, and for other hash seeds once these agree."""
        for probe in stability_probes(context):
            first, second = Ask(task.id, probe), Ask(task.id, probe, repeat=1)
            yield first
            one = context.see(first)
            if one is None or one.outcome != "reward":
                continue
            yield second
            two = context.see(second)
            if two is not None and first_difference(one, two) is None:
                for seed in HASH_SEEDS:
                    yield Ask(task.id, probe, Variation(hash_seed=seed))

    def check_task(self, context: Context, task: Task) -> Iterable[Found | Unmeasured]:
        """Report the first probe that another hash seed changes."""
        for probe in stability_probes(context):
            first = Ask(task.id, probe)
            baseline = context.known(first)
            for ask in self.asks(context, task):
                if ask.probe != probe or not ask.variation.hash_seed:
                    continue
                varied = context.known(ask)
                difference = first_difference(baseline, varied)
                if difference is None:
                    continue
                where = (
                    f"from step {difference['step']} of the trace on"
                    if difference["what"] == "trace"
                    else f"{describe(baseline)}, then {describe(varied)}"
                    if difference["what"] == "reward"
                    else "another row is generated"
                )
                yield Found(
                    message=(
                        f"PYTHONHASHSEED={ask.variation.hash_seed} should change nothing; "
                        f"seen with {probe}: {where}."
                    ),
                    ground=f"{probe} {difference['what']} differs with the hash seed",
                    task=task.id,
                    evidence={
                        "expected": "the result of hash seed 0",
                        "seen": [seen_evidence(baseline), seen_evidence(varied)],
                        "difference": difference,
                        "hash_seed": ask.variation.hash_seed,
                    },
                    asks=(first, ask),
                )
                return


RULE = HashSeed()
