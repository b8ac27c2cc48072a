"""DET007."""

from __future__ import annotations

from qualityhub.engine.rules.model import Page
from qualityhub.engine.rules.varied import Varied


class Manner(Varied):
    """The result depends on what was called before, beside, or from where."""

    code = "DET007"
    title = "Result differs with the way it is called"
    fields = frozenset({"manner"})
    page = Page(
        what=(
            "Repeats the submission (or the seeded trace) the way a trainer calls: rows in the "
            "opposite order in one process, twice in one process, with another instance stepped in "
            "between, from a thread; at the certify effort also from an asyncio executor, from a "
            "daemon process and 64 at once. For tasks with an image, pytest's tests run in the "
            "opposite order. That it cannot be called from a thread, say, is a lead; that it "
            "answers another reward is a finding."
        ),
        why=(
            "A reward that depends on which rows the same worker scored before belongs to no row. "
            "State shared by two instances makes vectorised training another environment than the "
            "one that was tested."
        ),
        example="`seen = set()` at module level; `return 0.0 if completion in seen else 1.0`",
        fix=(
            "Keep state in the instance or in the call; seed a generator of your own in each; use "
            "no signals for time limits."
        ),
    )

    def measures(self) -> str:
        """Say what a pass claims."""
        return "order, repetition and a calling thread change no result"


RULE = Manner()
