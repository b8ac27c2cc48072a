"""FMT002."""

from __future__ import annotations

from qualityhub.engine.rules.model import Page
from qualityhub.engine.rules.reported import ReportedByReader


class UnknownKey(ReportedByReader):
    """A key that the format does not know and its loader silently ignores."""

    code = "FMT002"
    title = "Unknown key in a task's configuration"
    severity = "warning"
    page = Page(
        what="Compares every key of a task's configuration with the format's own schema.",
        why=(
            "Loaders ignore what they do not know. A time limit spelled wrongly is no time limit, "
            "and nobody hears of it."
        ),
        example="`timeout_secs = 900` in `[verifier]` of a `task.toml`; the key is `timeout_sec`.",
        fix="Use the key the message suggests, or delete it. Free notes go below `[metadata]`.",
    )

    def measures(self) -> str:
        """Say what a pass claims."""
        return "every configuration key is known"


RULE = UnknownKey()
