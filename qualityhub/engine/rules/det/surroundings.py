"""DET005."""

from __future__ import annotations

from qualityhub.engine.rules.model import Page
from qualityhub.engine.rules.varied import Varied


class Surroundings(Varied):
    """The result depends on the machine or the account it runs in."""

    code = "DET005"
    title = "Result differs with its surroundings"
    fields = frozenset(
        {
            "timezone",
            "locale",
            "folder",
            "home",
            "user",
            "hostname",
            "umask",
            "cpus",
            "order",
            "noise",
            "network",
        }
    )
    page = Page(
        what=(
            "Repeats the submission (or the seeded trace) with all of this changed at once: time "
            "zone, locale, working folder, home, user name, host name, umask, number of CPUs, the "
            "order in which files list, unrelated variables. Where that differs from a stable "
            "baseline, it finds and names the one change (or the few together) that does it."
        ),
        why=(
            "Training workers are not the owner's machine and not each other's. A reward that "
            "depends on them differs between two workers of one run."
        ),
        example="`cases = os.listdir(folder); return check(cases[0], completion)`",
        fix=(
            "Sort what a folder lists, name the time zone and the encoding, resolve paths from "
            "`__file__`, and keep the machine out of the reward."
        ),
    )

    def measures(self) -> str:
        """Say what a pass claims."""
        return "another machine and account change no result"


RULE = Surroundings()
