"""DET002."""

from __future__ import annotations

from collections.abc import Iterable

from qualityhub.engine.environments.model import Task
from qualityhub.engine.rules.model import Context, Found, Page, Rule, Unmeasured
from qualityhub.engine.rules.views import (
    ALL_FAMILIES,
    CONFIRMATIONS,
    HASH_SEEDS,
    describe,
    first_difference,
    runs_by_variation,
    seen_evidence,
    stability_probes,
)
from qualityhub.engine.trials.model import BASELINE, Ask, Variation


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
        """Ask for two baseline runs, other hash seeds once these agree, and confirmations.

        A reward that is merely random differs by chance in one run: both sides of a difference are
        run again before the hash seed is blamed.
        """
        for probe in stability_probes(context):
            first, second = Ask(task.id, probe), Ask(task.id, probe, repeat=1)
            yield first
            one = context.see(first)
            if one is None or one.outcome != "reward":
                continue
            yield second
            two = context.see(second)
            if two is None or first_difference(one, two) is not None:
                continue
            for seed in HASH_SEEDS:
                varied = Variation(hash_seed=seed)
                yield Ask(task.id, probe, varied)
                seen = context.see(Ask(task.id, probe, varied))
                if seen is not None and first_difference(one, seen) is not None:
                    for repeat in range(1, CONFIRMATIONS + 1):
                        yield Ask(task.id, probe, varied, repeat)
                        yield Ask(task.id, probe, repeat=repeat + 1)

    def check_task(self, context: Context, task: Task) -> Iterable[Found | Unmeasured]:
        """Report the first probe that another hash seed changes, and nothing else does."""
        compared = False
        for probe in stability_probes(context):
            groups = runs_by_variation(context, task, probe)
            baseline = groups.pop(BASELINE, [])
            if not baseline or not _agree(context, baseline):
                continue
            for variation, runs in groups.items():
                if not _agree(context, runs):
                    continue  # It changes on its own: DET001 or DET003 says so.
                compared = True
                found = self._compare(context, task, baseline[0], runs, variation)
                if found is not None:
                    yield found
                    return
        if not compared:
            yield Unmeasured("no result is stable without the change", "a stable result")

    def _compare(
        self, context: Context, task: Task, first: Ask, runs: list[Ask], variation: Variation
    ) -> Found | None:
        before, after = context.known(first), context.known(runs[0])
        difference = first_difference(before, after)
        if difference is None:
            return None
        match difference["what"]:
            case "trace":
                where = f"another trace from step {difference['step']} on"
            case "reward":
                where = f"{describe(before)}, then {describe(after)}"
            case _:
                where = "another row is generated"
        return Found(
            message=(
                f"PYTHONHASHSEED={variation.hash_seed} should change nothing; "
                f"seen with {first.probe}: {where}."
            ),
            ground=f"{first.probe} {difference['what']} differs with the hash seed",
            task=task.id,
            evidence={
                "expected": "the result of hash seed 0",
                "seen": [seen_evidence(before), seen_evidence(after)],
                "difference": difference,
                "hash_seed": variation.hash_seed,
                "runs": len(runs),
            },
            asks=(first, *runs),
        )


def _agree(context: Context, runs: list[Ask]) -> bool:
    first = context.known(runs[0])
    return all(first_difference(first, context.known(ask)) is None for ask in runs[1:])


RULE = HashSeed()
