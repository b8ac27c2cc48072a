"""DET006."""

from __future__ import annotations

from qualityhub.engine.rules.model import Page
from qualityhub.engine.rules.varied import Varied


class Load(Varied):
    """The result depends on how busy the machine is."""

    code = "DET006"
    title = "Result differs under load"
    # How busy a training host is, nobody here knows.
    severity = "warning"
    fields = frozenset({"load"})
    page = Page(
        what=(
            "Repeats the submission (or the seeded trace) beside busy processes. A run that merely "
            "ends at our own time limit counts for nothing, and a slow environment passes."
        ),
        why=(
            "Hosts that train are busy. A reward that rests on measured time, or on a tight limit "
            "inside the verifier, punishes the policy for its neighbours."
        ),
        example="`started = time.time(); solve(); return float(time.time() - started < 0.05)`",
        fix=(
            "Count operations, or compare with a reference that runs under the same load; give "
            "limits inside the verifier ten times what they need."
        ),
    )

    def measures(self) -> str:
        """Say what a pass claims."""
        return "busy neighbours change no result"


RULE = Load()
