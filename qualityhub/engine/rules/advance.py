"""``advance``: what is still needed of an inspection, or its report. Pure.

Resuming, caching, re-deriving after a policy change and replaying an old verdict are all "call it
again with the stored results".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from qualityhub.engine.environments.model import Environment, Task
from qualityhub.engine.policy import EFFORTS, AdmissionPolicy
from qualityhub.engine.report import InspectionReport
from qualityhub.engine.rules.catalogue import select_rules
from qualityhub.engine.rules.confirm import (
    DISTRUSTED,
    cold_first,
    cold_only,
    distrusted,
    unconfirmed,
)
from qualityhub.engine.rules.model import Context, Found, Rule, Unmeasured
from qualityhub.engine.rules.verdict import Judged, Waiver, build_report
from qualityhub.engine.trials.model import Ask, Observation, World


@dataclass(frozen=True, slots=True)
class Tally:
    """How much was run, for the report; no verdict depends on it.

    Attributes:
        run: Trials run now.
        cached: Trials taken from a store.
        seconds: Wall-clock seconds of the inspection.
        by_trial: Seconds by trial key.
    """

    run: int = 0
    cached: int = 0
    seconds: float = 0.0
    by_trial: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Inspection:
    """Everything a verdict is made from, but the observations.

    Attributes:
        environment: The parsed package.
        worlds: World by task id; ``""`` serves every task without its own.
        policy: The policy in force.
        source: What the user named, for the report.
        select: Rule codes or prefixes to run; empty means all.
        ignore: Rule codes or prefixes to leave out.
        waivers: Granted by whoever may grant; not the owner's requests.
        today: ISO date that decides which waivers still hold.
        host: Provenance for the report.
    """

    environment: Environment
    worlds: Mapping[str, World]
    policy: AdmissionPolicy
    source: str = ""
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    waivers: tuple[Waiver, ...] = ()
    today: str = ""
    host: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Step:
    """Either asks that still need an answer, or the report."""

    asks: tuple[Ask, ...]
    report: InspectionReport | None = None


def advance(
    inspection: Inspection,
    seen: Mapping[Ask, Observation],
    tally: Tally | None = None,
) -> Step:
    """Return the asks still unanswered or, once there are none, the report.

    Args:
        inspection: What is judged, under which policy.
        seen: Every observation so far.
        tally: Counts for the report.
    """
    policy = inspection.policy
    doubt = distrusted(seen)
    known = cold_only(seen) if doubt else cold_first(seen)
    context = Context(inspection.environment, inspection.worlds, policy, known.get, {})
    rules = select_rules(inspection.select, (*inspection.ignore, *policy.ignore))
    wanted: dict[Ask, None] = {}
    for rule in rules:
        if skip_reason(rule, context):
            continue
        for task in inspection.environment.tasks:
            if context.world(task.id).status == "ready":
                for ask in rule.asks(context, task):
                    if ask not in known:
                        wanted[replace(ask, cold=ask.cold or doubt)] = None
    if wanted:
        return Step(tuple(wanted))
    judged = [judge(rule, context) for rule in rules]
    if doubt:
        host = {**inspection.host, "fork_server": DISTRUSTED}
        inspection = replace(inspection, host=host)
    elif doubtful := unconfirmed(context, judged, seen):
        return Step(tuple(doubtful))
    return Step((), build_report(inspection, judged, known, tally or Tally()))


def skip_reason(rule: Rule, context: Context) -> str:
    """Return why a rule does not run here at all, or an empty string."""
    reason = rule.not_applicable(context)
    if not reason and EFFORTS.index(rule.from_effort) > EFFORTS.index(context.policy.effort):
        reason = f"not part of the {context.policy.effort} effort"
    return reason


def judge(rule: Rule, context: Context) -> Judged:
    """Run one rule over everything it applies to."""
    reason = skip_reason(rule, context)
    if reason:
        return Judged(rule, skipped=reason)
    judged = Judged(rule, found=list(rule.check_package(context)))
    if rule.cost == "static":
        return judged
    for task in context.environment.tasks:
        world = context.world(task.id)
        if world.status == "unavailable":
            judged.unmeasured[task.id] = Unmeasured(world.reason, world.would_need)
        elif world.status == "failed":
            _world_failed(rule, context, task, judged)
        else:
            _judge_task(rule, context, task, judged)
    return judged


def _judge_task(rule: Rule, context: Context, task: Task, judged: Judged) -> None:
    asks = tuple(rule.asks(context, task))
    judged.asks.extend(asks)
    failed = [seen for ask in asks if (seen := context.known(ask)).outcome == "machinery"]
    if failed:
        judged.errors[task.id] = failed[0].detail or "our machinery failed"
        return
    left = [seen for ask in asks if (seen := context.known(ask)).outcome == "unmeasured"]
    if left:
        judged.unmeasured[task.id] = Unmeasured(
            left[0].detail, "a larger budget, or answers that do not hang"
        )
        return
    for item in rule.check_task(context, task):
        if isinstance(item, Found):
            judged.found.append(item)
        else:
            judged.unmeasured[task.id] = item


def _world_failed(rule: Rule, context: Context, task: Task, judged: Judged) -> None:
    world = context.world(task.id)
    if rule.code != "DEP002":
        judged.unmeasured[task.id] = Unmeasured("its world could not be built", world.reason)
        return
    own = task.id if task.id in context.worlds else None
    if own is None and judged.found:
        return
    judged.found.append(
        Found(
            message=f"What it declares cannot be built: {world.reason}",
            ground="world cannot be built",
            task=own,
            evidence={
                "expected": "every declared dependency resolves and installs",
                "seen": {"detail": world.log[-2000:]},
                "declared": list(context.environment.dependencies.requirements),
            },
        )
    )
