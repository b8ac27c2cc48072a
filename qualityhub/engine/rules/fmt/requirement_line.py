"""FMT004."""

from __future__ import annotations

from qualityhub.engine.rules.model import Page
from qualityhub.engine.rules.reported import ReportedByReader


class RequirementLine(ReportedByReader):
    """A line of a requirements file that an inspection does not follow."""

    code = "FMT004"
    title = "Requirements line is not followed"
    severity = "warning"
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


RULE = RequirementLine()
