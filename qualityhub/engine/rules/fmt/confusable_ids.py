"""FMT003."""

from __future__ import annotations

from qualityhub.engine.rules.model import Page
from qualityhub.engine.rules.reported import ReportedByReader


class ConfusableIds(ReportedByReader):
    """Two names differ in nothing that every file system keeps apart."""

    code = "FMT003"
    title = "Names differ only in case or Unicode form"
    severity = "warning"
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


RULE = ConfusableIds()
