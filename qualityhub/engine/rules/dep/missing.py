"""DEP002."""

from __future__ import annotations

from collections.abc import Iterable

from qualityhub.engine.environments.model import Task
from qualityhub.engine.rules.model import Context, Found, Page, Rule, Unmeasured
from qualityhub.engine.rules.views import (
    ALL_FAMILIES,
    blamed_task,
    main_probe,
    number,
    seen_evidence,
)
from qualityhub.engine.trials.model import Ask, Observation
from qualityhub.engine.trials.probes import NOP


class MissingDependency(Rule):
    """Something the environment imports is not there, or what it declares cannot be had."""

    code = "DEP002"
    title = "Dependency is missing"
    cost = "behaviour"
    families = ALL_FAMILIES
    layers = ("environment", "verifier", "solution")
    page = Page(
        what=(
            "Builds the world from what the environment declares, and nothing else, and runs it: "
            "every declared requirement must resolve and install, and every import must succeed. "
            "Nothing is ever installed because a file imports it."
        ),
        why=(
            "It works on the owner's machine, where the package happened to be. In training the "
            "verifier raises, and the raise is counted as a failed rollout."
        ),
        example="`scorer.py` imports `sympy`; no requirements file names it.",
        fix='Declare it, pinned: `[environment] dependencies = ["sympy==1.14.0"]`.',
    )

    def measures(self) -> str:
        """Say what a pass claims."""
        return "everything it imports is declared and installs"

    def asks(self, context: Context, task: Task) -> Iterable[Ask]:
        """Ask for what runs verifier, environment and reference."""
        probe = main_probe(context)
        yield Ask(task.id, probe)
        # An untouched container lacks the modules that the task asks for.
        if context.environment.family in {"function", "scorer"}:
            yield Ask(task.id, NOP)

    def check_task(self, context: Context, task: Task) -> Iterable[Found | Unmeasured]:
        """Report the first module that was not found."""
        for ask in self.asks(context, task):
            seen = context.known(ask)
            module = seen.facts.get("missing_module")
            if module and not _harmless(context, seen):
                yield Found(
                    message=f"It imports {module!r}, which nothing it declares provides.",
                    ground=f"missing {module}",
                    task=blamed_task(task, seen),
                    evidence={
                        "expected": f"a declared dependency that provides {module}",
                        "seen": seen_evidence(seen),
                        "declared": list(context.environment.dependencies.requirements),
                    },
                    asks=(ask,),
                )
                return


def _harmless(context: Context, seen: Observation) -> bool:
    """Say whether a task logged a failed import and yet came to its end: it was caught."""
    reward = number(seen)
    success = context.environment.reward.success
    return context.environment.family == "task" and reward is not None and reward >= success


RULE = MissingDependency()
