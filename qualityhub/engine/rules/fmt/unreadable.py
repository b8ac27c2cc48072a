"""FMT001."""

from __future__ import annotations

from qualityhub.engine.rules.model import Page
from qualityhub.engine.rules.reported import ReportedByReader


class UnreadablePackage(ReportedByReader):
    """The files do not form one environment in one known format."""

    code = "FMT001"
    title = "Package cannot be read, or could be read in two ways"
    page = Page(
        what=(
            "Reads the package as data, without importing or running any of it: known format, one "
            "format only, every file readable, links inside the tree, rows that parse, the entry "
            "point present."
        ),
        why=(
            "What two readers understand differently is trained on in a way nobody inspected. A "
            "row that does not parse is dropped silently by one loader and ends a run in another."
        ),
        example=(
            "A folder that holds both `scorer.py` with rows and `task.toml`; a JSONL file whose "
            "line 83 is cut off; a `scorer.py` without `score`."
        ),
        fix=(
            "Follow the message: it names the file, the line and what was expected. Where two "
            "formats share a folder, move one out or name the meant one with `--adapter`."
        ),
    )

    def measures(self) -> str:
        """Say what a pass claims."""
        return "the package reads as one environment"


RULE = UnreadablePackage()
