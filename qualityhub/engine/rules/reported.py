"""Rules whose facts the format readers have already seen."""

from __future__ import annotations

from collections.abc import Iterable

from qualityhub.engine.rules.model import Context, Found, Rule
from qualityhub.engine.rules.views import ALL_FAMILIES


class ReportedByReader(Rule):
    """Turns the reader's problems of this rule's code into findings."""

    cost = "static"
    families = ALL_FAMILIES

    def check_package(self, context: Context) -> Iterable[Found]:
        """Report what the reader saw under this code."""
        for problem in context.environment.problems:
            if problem.code == self.code:
                yield Found(
                    message=problem.message,
                    ground=problem.ground or problem.message,
                    task=problem.task,
                    location=problem.location,
                )
