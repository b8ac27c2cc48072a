"""Which images a Dockerfile starts from, and whether it is one of them unchanged."""

from __future__ import annotations

import re
import shlex

from qualityhub.engine.sandbox.dockerfile import expand_variables, instructions

_ADDS_NOTHING = frozenset({"CMD", "EXPOSE", "LABEL", "MAINTAINER", "HEALTHCHECK", "STOPSIGNAL"})


def base_images(text: str) -> tuple[str, ...]:
    """Return the images that a Dockerfile takes from outside: of every FROM, and of COPY's."""
    given: dict[str, str] = {}
    stages: set[str] = set()
    found: dict[str, None] = {}
    begun = False
    for keyword, rest in instructions(text):
        names: list[str] = []
        if keyword == "ARG" and not begun:
            given.update(_defaults(rest, given))
        elif keyword == "FROM":
            begun = True
            words = expand_variables(rest, given).split()
            words = [word for word in words if not word.startswith("--")]
            names = words[:1]
            if len(words) == 3 and words[1].upper() == "AS":
                own = words[2].lower()
                names = [name for name in names if name.lower() not in stages]
                stages.add(own)
        elif keyword == "COPY":
            names = [name for name in re.findall(r"--from=(\S+)", rest) if not name.isdigit()]
        for name in names:
            if name.lower() not in stages | {"scratch"} and "$" not in name:
                found[name] = None
    return tuple(found)


def bare_base(text: str) -> str:
    """Return the image that a Dockerfile stands for where it adds nothing to it, else nothing.

    What a container's command is does not count: a world is given its own.
    """
    keywords = [keyword for keyword, _ in instructions(text)]
    if keywords.count("FROM") != 1 or set(keywords) - {"FROM", "ARG"} - _ADDS_NOTHING:
        return ""
    return next(iter(base_images(text)), "")


def _defaults(rest: str, given: dict[str, str]) -> dict[str, str]:
    try:
        words = shlex.split(rest)
    except ValueError:
        return {}
    pairs = (word.partition("=") for word in words)
    return {name: expand_variables(value, given) for name, equals, value in pairs if equals}
