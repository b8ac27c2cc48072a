"""Cold confirmation: what a fork server showed counts only once a world of its own agrees.

Fork-served trials are a screen. Whatever a finding rests on runs again cold, and so does a sample
of what passed. A cold observation takes the place of the served one, so a report never rests on
served trials alone. Where the two disagree, chance is told from a fault of ours by repeating cold:
results that differ among themselves are the environment's own randomness, and the rules that look
for it say so; results that agree with each other and not with the server are a fault of the server.
Then nothing that it showed of the environment counts: all of it is judged from cold trials, and the
report says so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from qualityhub.engine.environments.model import Task
from qualityhub.engine.rules.model import Context, Found
from qualityhub.engine.rules.verdict import Judged
from qualityhub.engine.rules.views import first_difference, main_probe
from qualityhub.engine.trials.model import Ask, Observation

REPEATS = 12
"""Cold runs that must agree with each other before the fork server is blamed. A result that comes
up in one run of four escapes all of them in 3 % of cases."""
PATIENCE = 60
"""So many where served runs differ among themselves: that speaks of chance, and a result that comes
up in one run of ten escapes 60 in 0.2 % of cases."""
FEWEST = 3
SHARE = 100
"""Of what passed, ``FEWEST`` tasks and one in ``SHARE`` run again cold."""


DISTRUSTED = "not used: it gave results that worlds started for one trial alone did not give"
"""What the report says of the fork server in that case."""


def cold_first(seen: Mapping[Ask, Observation]) -> Mapping[Ask, Observation]:
    """Return observations by ask, cold ones in place of served ones.

    A cold run that a budget left out takes nothing's place.
    """
    cold = {
        replace(ask, cold=False): observation
        for ask, observation in seen.items()
        if ask.cold and observation.outcome != "unmeasured"
    }
    return {**seen, **cold} if cold else seen


def cold_only(seen: Mapping[Ask, Observation]) -> Mapping[Ask, Observation]:
    """Return observations by ask without what a fork server showed."""
    kept = {ask: observation for ask, observation in seen.items() if not observation.served}
    return {
        **kept,
        **{replace(ask, cold=False): observation for ask, observation in kept.items() if ask.cold},
    }


def distrusted(seen: Mapping[Ask, Observation]) -> bool:
    """Say whether the fork server is at fault: it contradicts cold runs that agree."""
    return any(
        _contradicted(group, seen)
        for group in {replace(ask, repeat=0) for ask in seen if ask.cold}
        if replace(group, repeat=REPEATS - 1) in seen
    )


def unconfirmed(
    context: Context, judged: Sequence[Judged], seen: Mapping[Ask, Observation]
) -> list[Ask]:
    """Return the cold asks still to be answered.

    Args:
        context: Sees cold observations first.
        judged: Every rule's facts under that view.
        seen: Every observation, as it came.
    """
    if not any(observation.served for observation in seen.values()):
        return []
    wanted: dict[Ask, None] = {}
    for item in judged:
        for found in item.found:
            wanted.update(dict.fromkeys(_cold(found.asks, seen)))
    wanted.update(dict.fromkeys(_cold(_sample(context, judged), seen)))
    if not wanted:
        for group in _contested(context, judged, seen):
            wanted.update(dict.fromkeys(_repeated(group, seen)))
    return list(wanted)


def _cold(asks: Iterable[Ask], seen: Mapping[Ask, Observation]) -> Iterable[Ask]:
    for ask in asks:
        twin = replace(ask, cold=True)
        if ask in seen and seen[ask].served and twin not in seen:
            yield twin


def _sample(context: Context, judged: Sequence[Judged]) -> Iterable[Ask]:
    """Return the baseline runs of a few tasks without a finding, the same ones every time."""
    found = {item.task for rule in judged for item in rule.found}
    passed = [task for task in context.environment.tasks if task.id not in found]
    passed.sort(key=lambda task: hashlib.sha256(task.digest.encode()).digest())
    for task in passed[: FEWEST + len(passed) // SHARE]:
        yield Ask(task.id, main_probe(context))


def _contested(
    context: Context, judged: Sequence[Judged], seen: Mapping[Ask, Observation]
) -> list[Ask]:
    """Return the first cold run of everything that served trials showed and cold ones do not."""
    touched = {ask.task for ask in seen if ask.cold}
    tasks = [task for task in context.environment.tasks if task.id in touched]
    served = replace(context, see={ask: seen[ask] for ask in seen if not ask.cold}.get, memo=None)
    asks: list[Ask] = [ask for ask in seen if not ask.cold and _differs(ask, seen)]
    for item in judged:
        if item.skipped or item.rule.cost == "static":
            continue
        kept = {(found.task, found.ground) for found in item.found}
        for task in tasks:
            if task.id not in item.errors and context.world(task.id).status == "ready":
                for found in _found(item, served, task):
                    if (found.task, found.ground) not in kept and not _by_load(found, seen):
                        asks.extend(found.asks)
    return list(dict.fromkeys(replace(ask, repeat=0, cold=True) for ask in asks))


def _found(item: Judged, served: Context, task: Task) -> Iterable[Found]:
    # The rule may have asked for more since cold results came in: then it has not seen all of it
    # served, and only what both saw can be compared.
    if any(served.see(ask) is None for ask in item.rule.asks(served, task)):
        return
    for found in item.rule.check_task(served, task):
        if isinstance(found, Found):
            yield found


def _by_load(found: Found, seen: Mapping[Ask, Observation]) -> bool:
    """Whether a finding rests on a time-out: that another run is faster contradicts nothing."""
    return any(seen[ask].outcome == "timeout" for ask in found.asks if ask in seen)


def _differs(ask: Ask, seen: Mapping[Ask, Observation]) -> bool:
    """Whether a served observation and its cold twin are both there and differ."""
    cold, own = seen.get(replace(ask, cold=True)), seen[ask]
    return (
        cold is not None
        and own.served
        and cold.outcome not in {"unmeasured", "machinery"}
        and first_difference(own, cold) is not None
    )


def _repeated(group: Ask, seen: Mapping[Ask, Observation]) -> list[Ask]:
    """Return the cold repeats that are not there yet and could still tell chance from a fault."""
    for count in (REPEATS, PATIENCE) if _flickers(group, seen) else (REPEATS,):
        wanted = [replace(group, repeat=repeat) for repeat in range(count)]
        missing = [ask for ask in wanted if ask not in seen]
        if missing or not _agree(wanted, seen):
            return missing
    return []


def _contradicted(group: Ask, seen: Mapping[Ask, Observation]) -> bool:
    """Whether enough cold runs agree with each other and a served one does not with them."""
    count = PATIENCE if _flickers(group, seen) else REPEATS
    wanted = [replace(group, repeat=repeat) for repeat in range(count)]
    if any(ask not in seen for ask in wanted) or not _agree(wanted, seen):
        return False
    return any(first_difference(seen[group], run) is not None for run in _served(group, seen))


def _served(group: Ask, seen: Mapping[Ask, Observation]) -> list[Observation]:
    runs = [seen.get(replace(group, repeat=repeat, cold=False)) for repeat in range(REPEATS)]
    return [run for run in runs if run is not None and run.served]


def _flickers(group: Ask, seen: Mapping[Ask, Observation]) -> bool:
    """Whether served runs that differ in nothing but their number gave different results."""
    runs = _served(group, seen)
    return any(first_difference(runs[0], run) is not None for run in runs[1:])


def _agree(asks: Sequence[Ask], seen: Mapping[Ask, Observation]) -> bool:
    """Whether cold runs agree among themselves; one that says nothing agrees with none."""
    runs = [seen[ask] for ask in asks]
    return all(
        run.outcome not in {"unmeasured", "machinery"} and first_difference(runs[0], run) is None
        for run in runs
    )
