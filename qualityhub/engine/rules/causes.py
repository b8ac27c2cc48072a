"""From "something around it changes the result" to the smallest change that does. Pure.

Everything at once is tried first. Where that differs from a baseline which agrees with itself, each
change is tried alone; where none alone is enough, the set is halved until no part of it can be left
out. Both sides of what remains are run again before it is blamed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from qualityhub.engine.environments.model import Task
from qualityhub.engine.rules.model import Context
from qualityhub.engine.rules.views import CONFIRMATIONS, describe, first_difference
from qualityhub.engine.trials.model import BASELINE, Ask, Observation, Variation
from qualityhub.engine.trials.variations import Part, assemble, parts_of, screens, singles

CLOCKS = ("+1d", "+30d", "+365d", "+3650d")
"""Shifts, smallest first: the smallest that changes the result is named."""
FAULTS = frozenset({4, 6, 7, 8, 11})
"""Signals by which a program ends itself; what else ends one is a limit."""
BY_CHANCE = frozenset({"load", "many"})
"""What works through timing need not show itself in every run."""
Group = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Cause:
    """The smallest change that alters a result.

    Attributes:
        variation: What was changed.
        baseline: Runs without the change, which agree.
        runs: Runs with it.
        difference: How the first of them that differs does.
        shown: That run.
    """

    variation: Variation
    baseline: tuple[Ask, ...]
    runs: tuple[Ask, ...]
    difference: dict[str, Any]
    shown: Ask


@dataclass(slots=True)
class Explored:
    """What is known of one probe of one task.

    Attributes:
        asks: Everything wanted so far, in order.
        stable: Whether the baseline earns a reward and agrees with itself.
        causes: What changes the result.
        flickers: Everything at once changed the result, but not every time.
        measured: What took hold in a run that could be compared.
        refused: Why a change did not take hold, or could not be compared.
    """

    asks: dict[Ask, None] = field(default_factory=dict)
    stable: bool = False
    causes: list[Cause] = field(default_factory=list)
    flickers: bool = False
    measured: set[Group] = field(default_factory=set)
    refused: dict[Group, str] = field(default_factory=dict)


def group_of(part: Part) -> Group:
    """Return what a change is one value of."""
    name, value = part
    return (name, str(value) if name == "manner" else "")


def changed(before: Observation, after: Observation) -> dict[str, Any] | None:
    """Return how a run under a variation differs from the baseline, or None.

    What ran out of time or against a limit of ours is slower or larger, not different.
    """
    if not finished(after):
        return None
    difference = first_difference(before, after)
    if difference is None and int(after.facts.get("distinct", 1)) > 1:
        return {"what": "reward", "first": describe(before), "then": "several at once"}
    return difference


def finished(seen: Observation) -> bool:
    """Whether a run says anything of the environment."""
    if seen.outcome == "killed":
        return seen.facts.get("signal") in FAULTS
    return seen.outcome not in {"timeout", "unmeasured", "machinery"}


def explore(context: Context, task: Task, probe: str) -> Explored:
    """Return what is known by now, and every ask that leads further; not to be changed."""
    if context.memo is None:
        return _explore(context, task, probe)
    key = ("explore", task.id, probe)
    if key not in context.memo:
        context.memo[key] = _explore(context, task, probe)
    found: Explored = context.memo[key]
    return found


def _explore(context: Context, task: Task, probe: str) -> Explored:
    look = _Look(context, task, probe)
    one = look.at(BASELINE)
    if one is None or one.outcome != "reward":
        return look.explored
    look.first = one
    two = look.at(BASELINE, 1)
    if two is None or first_difference(one, two) is not None:
        return look.explored
    look.explored.stable = True
    _search(look, context)
    return look.explored


class _Pending(Exception):  # noqa: N818 - not an error: an answer is still to come
    """An answer is missing that the next step depends on."""


class _Look:
    """Sees runs of one probe, and notes what it wanted to see."""

    def __init__(self, context: Context, task: Task, probe: str) -> None:
        self._context = context
        self._task = task
        self.probe = probe
        self.explored = Explored()
        self.first = Observation("reward", served=True)

    def ask(self, variation: Variation, repeat: int = 0) -> Ask:
        ask = Ask(self._task.id, self.probe, variation, repeat)
        self.explored.asks[ask] = None
        return ask

    def at(self, variation: Variation, repeat: int = 0) -> Observation | None:
        """Return a run, None while it is not there yet.

        What a fork server showed is no evidence against a baseline that ran cold: where the two
        differ, it is wanted cold as well.
        """
        ask = self.ask(variation, repeat)
        seen = self._context.see(ask)
        mixed = seen is not None and seen.served and not self.first.served
        if seen is None or not mixed or changed(self.first, seen) is None:
            return seen
        twin = replace(ask, cold=True)
        self.explored.asks[twin] = None
        return self._context.see(twin)

    def all(self, variations: Iterable[Variation], repeats: Iterable[int] = (0,)) -> None:
        """Want several runs at once.

        Raises:
            _Pending: One of them is not there yet.
        """
        wanted = tuple(repeats)
        seen = [self.at(variation, repeat) for variation in variations for repeat in wanted]
        if any(item is None for item in seen):
            raise _Pending

    def differs(self, variation: Variation, repeat: int = 0) -> dict[str, Any] | None:
        """Return how a run differs from the baseline's first.

        Raises:
            _Pending: It is not there yet.
        """
        seen = self.at(variation, repeat)
        if seen is None:
            raise _Pending
        return changed(self.first, seen)

    def applied(self, variation: Variation) -> bool:
        """Whether all of a variation took hold."""
        seen = self.at(variation)
        return seen is not None and set(variation.changes()) <= set(seen.facts.get("applied", ()))

    def cause(self, variation: Variation) -> Cause | None:
        """Run both sides again and return the cause, or None where it does not hold.

        Raises:
            _Pending: Not all of it is there yet.
        """
        repeats = range(CONFIRMATIONS + 1)
        self.all([variation], repeats)
        self.all([BASELINE], range(CONFIRMATIONS + 2))
        if any(self.differs(BASELINE, repeat) for repeat in range(CONFIRMATIONS + 2)):
            self.explored.stable = False
            return None
        different = [repeat for repeat in repeats if self.differs(variation, repeat)]
        chance = {name for part in parts_of(variation) for name in map(str, part)} & BY_CHANCE
        if len(different) < CONFIRMATIONS + (0 if chance else 1):
            return None
        difference = self.differs(variation, different[0])
        if difference is None:
            return None
        return Cause(
            variation=variation,
            baseline=tuple(self.ask(BASELINE, n) for n in range(CONFIRMATIONS + 2)),
            runs=tuple(self.ask(variation, repeat) for repeat in repeats),
            difference=difference,
            shown=self.ask(variation, different[0]),
        )


def _search(look: _Look, context: Context) -> None:
    together = screens(context.environment)
    alone = singles(context.environment) if context.policy.effort == "certify" else ()
    try:
        look.all((*together, *alone))
        odd = [screen for screen in together if _is_odd(look, screen)]
        if not look.explored.stable:
            return
        parts = list(dict.fromkeys(part for screen in odd for part in parts_of(screen)))
        tried = dict.fromkeys((*(assemble([part]) for part in parts), *alone))
        look.all(tried)
        suspects = [one for one in tried if look.differs(one) and look.applied(one)]
        for names in dict.fromkeys(group_of(parts_of(one)[0]) for one in suspects):
            of_group = [one for one in suspects if group_of(parts_of(one)[0]) == names]
            found = _smallest(look, of_group)
            if found is not None:
                look.explored.causes.append(found)
        for screen in odd:
            if look.differs(screen):
                _explain(look, screen)
    except _Pending:
        return
    finally:
        _note(look, (*together, *alone))
    _note(look, tuple(tried))


def _is_odd(look: _Look, screen: Variation) -> bool:
    """Whether a screen differs every time or says nothing: then its parts are tried alone."""
    seen = look.at(screen)
    if seen is not None and not finished(seen):
        return True
    if look.differs(screen) is None:
        return False
    if look.cause(screen) is None:
        look.explored.flickers = True
        return False
    return True


def _smallest(look: _Look, suspects: Sequence[Variation]) -> Cause | None:
    """Return the confirmed cause of one group, with the smallest value that shows it."""
    if suspects[0].clock in CLOCKS:
        most = CLOCKS.index(min((one.clock for one in suspects), key=_place))
        smaller = [Variation(clock=clock) for clock in CLOCKS[:most]]
        look.all(smaller)
        found = [one for one in smaller if look.differs(one) and look.applied(one)]
        suspects = [*found, *sorted(suspects, key=lambda one: _place(one.clock))]
    for one in suspects:
        cause = look.cause(one)
        if cause is not None:
            return cause
    return None


def _place(clock: str) -> int:
    return CLOCKS.index(clock) if clock in CLOCKS else len(CLOCKS)


def _explain(look: _Look, screen: Variation) -> None:
    """Find what in a screen works only together, where nothing in it does so alone."""
    alone = {group_of(part) for cause in look.explored.causes for part in parts_of(cause.variation)}
    if alone.intersection(map(group_of, parts_of(screen))):
        return
    seen = look.at(screen)
    held = set(seen.facts.get("applied", ())) if seen is not None else set()
    left = [part for part in parts_of(screen) if part[0] in held]
    if not left or not look.differs(assemble(left)):
        return
    cause = look.cause(assemble(_minimal(look, left)))
    if cause is not None:
        look.explored.causes.append(cause)


def _minimal(look: _Look, parts: list[Part]) -> list[Part]:
    """Return a smallest set of changes that still differs: none of it can be left out (ddmin)."""
    pieces = 2
    while len(parts) > 1:
        size = -(-len(parts) // pieces)
        chunks = [parts[start : start + size] for start in range(0, len(parts), size)]
        rests = [[part for part in parts if part not in chunk] for chunk in chunks]
        for smaller, next_pieces in (
            *((chunk, 2) for chunk in chunks),
            *((rest, max(pieces - 1, 2)) for rest in rests),
        ):
            if smaller and len(smaller) < len(parts) and look.differs(assemble(smaller)):
                parts, pieces = smaller, next_pieces
                break
        else:
            if pieces >= len(parts):
                break
            pieces = min(2 * pieces, len(parts))
    return parts


def _note(look: _Look, tried: Sequence[Variation]) -> None:
    """Note which changes were measured, and why others were not."""
    explored = look.explored
    for variation in tried:
        seen = look.at(variation)
        if seen is None:
            continue
        parts = parts_of(variation)
        applied, refused = seen.facts.get("applied", ()), seen.facts.get("not_applied", {})
        for part in parts:
            group = group_of(part)
            if part[0] not in applied:
                why = refused.get(part[0], "the trial ended before it could say that it had it")
                explored.refused.setdefault(group, str(why))
            elif not finished(seen):
                explored.refused.setdefault(group, "the trial ran out of time or into a limit")
            elif len(parts) == 1 or changed(look.first, seen) is None:
                explored.measured.add(group)
    for group in explored.measured:
        explored.refused.pop(group, None)
