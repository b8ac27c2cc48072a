"""VER004."""

from __future__ import annotations

from collections.abc import Iterable

from qualityhub.engine.environments.model import Family, Task
from qualityhub.engine.rules.model import Context, Found, Page, Rule, Unmeasured
from qualityhub.engine.rules.views import describe, lacks_module, seen_evidence
from qualityhub.engine.trials.model import Ask
from qualityhub.engine.trials.probes import MALFORMED, MALFORMED_PREFIX, NOP, ORACLE

SCORERS: frozenset[Family] = frozenset({"scorer"})
PROBES = (NOP, *(MALFORMED_PREFIX + name for name in MALFORMED))


class MalformedCrash(Rule):
    """The verifier raises, dies or hangs on an answer that is no answer."""

    code = "VER004"
    title = "Verifier crashes on malformed answers"
    cost = "behaviour"
    from_effort = "standard"
    families = SCORERS
    page = Page(
        what=(
            "Submits answers that policies under training really send (cut off, blank, prose, "
            "numbers that no type holds) and expects a reward, whatever it is. A hang is confirmed "
            "by a second run. Tasks whose reference already crashes are left to VER001."
        ),
        why=(
            "An exception in a reward function ends a training run, or is caught far away and "
            "becomes a zero nobody meant."
        ),
        example="`float(completion)` raises ValueError for `I do not know.`",
        fix="Parse first, and return the lowest reward for what does not parse.",
    )

    def measures(self) -> str:
        """Say what a pass claims."""
        return f"{len(PROBES)} malformed answers each get a reward"

    def asks(self, context: Context, task: Task) -> Iterable[Ask]:
        """Ask for the reference and every malformed answer; hangs twice."""
        yield Ask(task.id, ORACLE)
        for probe in PROBES:
            ask = Ask(task.id, probe)
            yield ask
            seen = context.see(ask)
            if seen is not None and seen.outcome == "timeout":
                yield Ask(task.id, probe, repeat=1)

    def check_task(self, context: Context, task: Task) -> Iterable[Found | Unmeasured]:
        """Report each task once, with every probe that ended without a reward."""
        oracle = context.known(Ask(task.id, ORACLE))
        if lacking := lacks_module(oracle):
            yield lacking
            return
        if oracle.outcome not in {"reward", "no_reference"}:
            yield Unmeasured("the reference itself gets no reward", "a reference that is scored")
            return
        bad: list[tuple[Ask, str]] = []
        shown: dict[str, object] = {}
        for probe in PROBES:
            ask = Ask(task.id, probe)
            seen = context.known(ask)
            if seen.outcome == "timeout":
                ask = Ask(task.id, probe, repeat=1)
                seen = context.known(ask)
            if seen.outcome == "reward":
                continue
            bad.append((ask, describe(seen)))
            shown[probe] = {
                "answer": _preview(probe),
                **seen_evidence(seen),
            }
        if bad:
            first, words = bad[0]
            more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
            yield Found(
                message=(
                    f"The verifier gives no reward for {first.probe.removeprefix(MALFORMED_PREFIX)}"
                    f"{more}: {words}."
                ),
                ground="no reward for " + ", ".join(sorted(ask.probe for ask, _ in bad)),
                task=task.id,
                evidence={"expected": "any reward, no exception", "seen": shown},
                asks=tuple(ask for ask, _ in bad),
            )


def _preview(probe: str) -> str:
    text = MALFORMED.get(probe.removeprefix(MALFORMED_PREFIX), "")
    return text if len(text) <= 60 else f"{text[:57]}... ({len(text)} characters)"


RULE = MalformedCrash()
