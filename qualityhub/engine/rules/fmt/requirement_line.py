"""FMT004."""

from __future__ import annotations

from collections.abc import Iterable

from qualityhub.engine.rules.model import Context, Found, Page, Rule
from qualityhub.engine.rules.views import ALL_FAMILIES


class RequirementLine(Rule):
    """A line of a requirements file that an inspection does not follow."""

    code = "FMT004"
    title = "Requirements line is not followed"
    cost = "static"
    severity = "warning"
    families = ALL_FAMILIES
    page = Page(
        what=(
            "Reads requirements files and reports options that would change where packages come "
            "from, editable installs and local paths."
        ),
        why=(
            "What the owner's machine installs and what the inspection installs are then two "
            "things."
        ),
        example="`--extra-index-url ...` or `-e ../shared` in `requirements.txt`.",
        fix="Name published packages; leave the index to the installation that builds.",
    )

    def measures(self) -> str:
        """Say what a pass claims."""
        return "every requirements line is followed"

    def check_package(self, context: Context) -> Iterable[Found]:
        """Report the lines that the reader did not follow."""
        for problem in context.environment.problems:
            if problem.code == self.code:
                yield Found(
                    message=problem.message,
                    ground=problem.ground or problem.message,
                    task=problem.task,
                    location=problem.location,
                )


RULE = RequirementLine()
