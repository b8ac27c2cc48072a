"""The catalogue: every rule module below the family packages, by code."""

from __future__ import annotations

import importlib
import pkgutil
from difflib import get_close_matches

from qualityhub.engine.errors import InvalidInputError
from qualityhub.engine.rules import dep, det, fmt, ver
from qualityhub.engine.rules.model import Rule


def _load() -> dict[str, Rule]:
    rules: dict[str, Rule] = {}
    for package in (fmt, ver, dep, det):
        for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
            rule: Rule = importlib.import_module(module.name).RULE
            if rule.code in rules:
                raise AssertionError(f"two rules carry {rule.code}")
            rules[rule.code] = rule
    return dict(sorted(rules.items()))


CATALOGUE: dict[str, Rule] = _load()


def find_rule(code: str) -> Rule:
    """Return a rule by its code, any case.

    Raises:
        InvalidInputError: There is none, with the nearest code.
    """
    rule = CATALOGUE.get(code.upper())
    if rule is None:
        near = get_close_matches(code.upper(), CATALOGUE, n=1, cutoff=0.4)
        hint = f"Did you mean {near[0]}?" if near else "`qualityhub rules` lists them."
        raise InvalidInputError("rule.unknown", f"There is no rule {code!r}.", hint)
    return rule


def select_rules(select: tuple[str, ...], ignore: tuple[str, ...]) -> list[Rule]:
    """Return the rules chosen by codes or code prefixes, in order.

    An empty ``select`` means all. A prefix such as ``DET`` chooses a family.

    Raises:
        InvalidInputError: A code or prefix that matches nothing.
    """
    for code in (*select, *ignore):
        if not any(known.startswith(code.upper()) for known in CATALOGUE):
            find_rule(code)
    wanted = tuple(code.upper() for code in select) or ("",)
    unwanted = tuple(code.upper() for code in ignore)
    return [
        rule
        for code, rule in CATALOGUE.items()
        if code.startswith(wanted) and not (unwanted and code.startswith(unwanted))
    ]
