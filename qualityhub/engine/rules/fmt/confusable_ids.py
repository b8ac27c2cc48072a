"""FMT003."""

from __future__ import annotations

from collections.abc import Iterable

from qualityhub.engine.rules.model import Context, Found, Page, Rule
from qualityhub.engine.rules.views import ALL_FAMILIES


class ConfusableIds(Rule):
    """Two names differ in nothing that every file system keeps apart."""

    code = "FMT003"
    title = "Names differ only in case or Unicode form"
    cost = "static"
    severity = "warning"
    families = ALL_FAMILIES
    page = Page(
        what=("Compares task ids and file names with case folded and Unicode composed."),
        why=(
            "A file system that folds case keeps one of the two. Results keyed by name are "
            "added up wrongly."
        ),
        example="Tasks `Sort/1` and `sort/1` in one file.",
        fix="Rename one of them.",
    )

    def measures(self) -> str:
        """Say what a pass claims."""
        return "no two names are confusable"

    def check_package(self, context: Context) -> Iterable[Found]:
        """Report the confusable names that the reader saw."""
        for problem in context.environment.problems:
            if problem.code == self.code:
                yield Found(
                    message=problem.message,
                    ground=problem.ground or problem.message,
                    task=problem.task,
                    location=problem.location,
                )


RULE = ConfusableIds()
