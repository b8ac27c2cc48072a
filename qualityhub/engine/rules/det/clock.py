"""DET004."""

from __future__ import annotations

from qualityhub.engine.rules.model import Page
from qualityhub.engine.rules.varied import Varied


class Clock(Varied):
    """The result depends on the date."""

    code = "DET004"
    title = "Result differs with the date"
    fields = frozenset({"clock"})
    page = Page(
        what=(
            "Repeats the submission (or the seeded trace) with the wall clock a year ahead, among "
            "other changes at once. Where that differs, it names the smallest shift that does; at "
            "the certify effort it also tries a day, a month, ten years, a month's end, a year's "
            "end and a leap day. The monotonic clock and file times are not shifted, and a program "
            "that reads the clock past the C library escapes it: then nothing is claimed."
        ),
        why=(
            "A task that passes today and fails next month spoils a training run long after it was "
            "admitted, and every comparison with an older checkpoint."
        ),
        example="`expires = datetime(2027, 1, 1); return 0.0 if datetime.now() > expires else 1.0`",
        fix=(
            "Take dates from the row or the task's own files; give test certificates and tokens a "
            "clock of their own."
        ),
    )

    def measures(self) -> str:
        """Say what a pass claims."""
        return "a later date changes no result"


RULE = Clock()
