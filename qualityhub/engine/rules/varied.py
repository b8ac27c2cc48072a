"""What the rules of the variation matrix have in common; each owns some of its fields."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from qualityhub.engine.environments.model import Task
from qualityhub.engine.rules.causes import FAULTS, Cause, Explored, Group, explore, group_of
from qualityhub.engine.rules.model import Context, Found, Rule, Unmeasured
from qualityhub.engine.rules.views import ALL_FAMILIES, describe, seen_evidence, stability_probes
from qualityhub.engine.trials.model import Ask, Observation
from qualityhub.engine.trials.variations import (
    Part,
    kinds_for,
    name_of,
    parts_of,
)

CALLER = frozenset({"thread", "executor", "daemon", "many", "interleaved"})
"""How it is called is the caller's choice: that it cannot be called so is said, and no defect."""
NOT_SHIFTED = "file times and the monotonic clock keep the true time"


class Varied(Rule):
    """Judges what changes of its own fields do; all of them share the same trials."""

    cost = "behaviour"
    from_effort = "standard"
    families = ALL_FAMILIES

    def asks(self, context: Context, task: Task) -> Iterable[Ask]:
        """Ask for everything changed at once, and for the cause of what that shows."""
        for probe in stability_probes(context):
            yield from explore(context, task, probe).asks

    def check_task(self, context: Context, task: Task) -> Iterable[Found | Unmeasured]:
        """Report the smallest change of this rule's fields that alters a result."""
        explored = [
            (probe, seen)
            for probe in stability_probes(context)
            if (seen := explore(context, task, probe)).stable
        ]
        if not explored:
            yield Unmeasured("no result is stable without the change", "a stable result")
            return
        causes: dict[tuple[Group, ...], Found] = {}
        for probe, seen in explored:
            for cause in seen.causes:
                groups = tuple(group_of(part) for part in parts_of(cause.variation))
                if groups[0][0] in self.fields:
                    causes.setdefault(groups, _found(context, task, probe, cause, seen))
        if causes:
            yield from causes.values()
            return
        missing = _missing(context, self.fields, [seen for _, seen in explored])
        if missing is not None:
            yield missing


def _found(context: Context, task: Task, probe: str, cause: Cause, explored: Explored) -> Found:
    family = context.environment.family
    parts = parts_of(cause.variation)
    names = " together with ".join(name_of(part, family) for part in parts)
    before, after = context.known(cause.baseline[0]), context.known(cause.shown)
    note = ""
    evidence = {
        "expected": "the result without the change",
        "seen": [seen_evidence(before), seen_evidence(after)],
        "difference": cause.difference,
        "changed": names,
        "runs": len(cause.runs),
    }
    if any(name == "clock" for name, _ in parts):
        evidence["not_shifted"] = NOT_SHIFTED
        note = " The code looks at file times, which are not shifted." if _skewed(after) else ""
    # The way to what works only together is long: who reproduces it need not search again.
    way = [ask for ask in explored.asks if not ask.cold] if len(parts) > 1 else []
    # Two causes of one rule are two findings; values are no part of the ground.
    grounds = " and ".join(" ".join(filter(None, group_of(part))) for part in parts)
    return Found(
        message=(
            f"{names[0].upper()}{names[1:]} should change nothing; "
            f"seen with {probe}: {_where(cause, before, after)}.{note}"
        ),
        ground=f"{probe} {cause.difference['what']} differs with {grounds}",
        task=task.id,
        evidence=evidence,
        kind="lead" if _is_lead(parts, after) else "finding",
        asks=tuple(dict.fromkeys((*cause.baseline, *cause.runs, *way))),
        severity="warning" if parts == (("manner", "reversed"),) and family == "task" else None,
    )


def _where(cause: Cause, before: Observation, after: Observation) -> str:
    match cause.difference["what"]:
        case "trace":
            return f"another trace from step {cause.difference['step']} on"
        case "reward":
            then = cause.difference["then"] if "distinct" in after.facts else describe(after)
            return f"{describe(before)}, then {then}"
        case _:
            return "another row is generated"


def _is_lead(parts: Sequence[Part], after: Observation) -> bool:
    """Whether the ground is the caller's, or our own change's, as much as the environment's."""
    called = {str(value) for name, value in parts if name == "manner"}
    crashed = after.outcome != "reward" and after.facts.get("signal") not in FAULTS
    return (bool(called & CALLER) and crashed) or (
        any(name == "clock" for name, _ in parts) and _skewed(after)
    )


def _skewed(after: Observation) -> bool:
    return bool(after.facts.get("file_times"))


def _missing(
    context: Context, fields: frozenset[str], explored: Sequence[Explored]
) -> Unmeasured | None:
    """Return what of a rule's fields was not measured on some probe, and why."""
    reasons: dict[str, None] = {}
    own = False
    for seen in explored:
        for group, why in seen.refused.items():
            if group[0] in fields:
                own = own or group[0] != "network"
                reasons[f"{_label(context, group)} not applied: {why}"] = None
        if seen.flickers and not seen.causes:
            reasons["everything changed at once gave another result, but not every time"] = None
    if not reasons:
        return None
    # A certificate claims all of it; at a lesser effort it stands beside the verdict.
    blocks = own and context.policy.effort == "certify"
    return Unmeasured("; ".join(reasons), "a world in which the change takes hold", blocks=blocks)


def _label(context: Context, group: Group) -> str:
    kinds = [kind for kind in kinds_for(context.environment) if kind.field == group[0]]
    for kind in kinds:
        if not group[1] or group[1] in kind.values:
            return kind.label
    return group[0]
