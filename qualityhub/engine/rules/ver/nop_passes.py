"""VER002."""

from __future__ import annotations

from collections.abc import Iterable

from qualityhub.engine.environments.model import Task
from qualityhub.engine.rules.model import Context, Found, Page, Rule, Unmeasured
from qualityhub.engine.rules.views import WITH_REFERENCE, lacks_module, number, seen_evidence, show
from qualityhub.engine.trials.model import Ask
from qualityhub.engine.trials.probes import NOP, ORACLE

NOP_WORDS = {
    "function": "a body of `pass`",
    "scorer": "an empty answer",
    "task": "an untouched container",
}


class NopPasses(Rule):
    """No work at all earns the reward of a success."""

    code = "VER002"
    title = "Doing nothing is accepted"
    cost = "behaviour"
    families = WITH_REFERENCE
    page = Page(
        what=(
            "Submits no work (an empty answer, a body of `pass`, an untouched container) in a "
            "fresh world and expects a reward below `reward.success`."
        ),
        why=(
            "A verifier that accepts nothing teaches nothing: every rollout is a success, the "
            "policy learns the shortest reply, and the domain looks solved."
        ),
        example="`assert answer in completion` with an empty `answer`; tests that collect no case.",
        fix="Let the tests fail on the initial state; check that at least one test really runs.",
    )

    def measures(self) -> str:
        """Say what a pass claims."""
        return "no work earns less than a success"

    def asks(self, context: Context, task: Task) -> Iterable[Ask]:
        """Ask for no work."""
        del context
        yield Ask(task.id, NOP)

    def check_task(self, context: Context, task: Task) -> Iterable[Found | Unmeasured]:
        """Compare the reward of no work with the reward of a success."""
        ask = Ask(task.id, NOP)
        seen = context.known(ask)
        success = context.environment.reward.success
        got = number(seen)
        if got is not None and got >= success:
            if _nothing_is_right(context, task):
                return
            words = NOP_WORDS[context.environment.family]
            yield Found(
                message=(
                    f"No work ({words}) should earn less than {show(success)}; "
                    f"it earned {show(got)}."
                ),
                ground="nop at success",
                task=task.id,
                evidence={"expected": f"reward < {show(success)}", "seen": seen_evidence(seen)},
                asks=(ask,),
            )
        elif context.environment.family != "task" and (lacking := lacks_module(seen)):
            yield lacking
        elif seen.facts.get("offline"):
            yield Unmeasured(
                "it downloads while it runs, and trials have no network",
                "everything it needs built into the image",
            )


def _nothing_is_right(context: Context, task: Task) -> bool:
    """Say whether the empty answer is the reference itself."""
    data = task.data
    if data.get("correct", data.get("answer")) == "":
        return True
    oracle = context.see(Ask(task.id, ORACLE))
    return oracle is not None and oracle.facts.get("answer") == ""


RULE = NopPasses()
