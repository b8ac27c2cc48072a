"""FMT002."""

from __future__ import annotations

from collections.abc import Iterable

from qualityhub.engine.rules.model import Context, Found, Page, Rule
from qualityhub.engine.rules.views import ALL_FAMILIES


class UnknownKey(Rule):
    """A key that the format does not know and its loader silently ignores."""

    code = "FMT002"
    title = "Unknown key in a task's configuration"
    cost = "static"
    severity = "warning"
    families = ALL_FAMILIES
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

    def check_package(self, context: Context) -> Iterable[Found]:
        """Report the unknown keys that the reader saw."""
        for problem in context.environment.problems:
            if problem.code == self.code:
                yield Found(
                    message=problem.message,
                    ground=problem.ground or problem.message,
                    task=problem.task,
                    location=problem.location,
                )


RULE = UnknownKey()
