"""Readers, one module per format, and the registry that knows them."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from qualityhub.engine.environments.formats import (
    gymnasium,
    harbor,
    humaneval,
    mbpp,
    reasoning_gym,
    scorer,
)
from qualityhub.engine.errors import InvalidInputError

if TYPE_CHECKING:
    from qualityhub.engine.environments.package import Format, NamedFormat

FORMATS: tuple[Format, ...] = (humaneval, mbpp, scorer, gymnasium, harbor)
"""Formats that are read from files, in the order in which evidence is listed."""

NAMED_FORMATS: dict[str, NamedFormat] = {
    gymnasium.NAME: gymnasium,
    reasoning_gym.NAME: reasoning_gym,
}
"""Formats whose source is a name, by the scheme before the colon."""


def format_named(name: str) -> Format:
    """Return the file format of a name.

    Raises:
        InvalidInputError: ``input.unknown_adapter``.
    """
    known = {item.NAME: item for item in FORMATS}
    if name in known:
        return known[name]
    near = get_close_matches(name, known, n=1)
    raise InvalidInputError(
        "input.unknown_adapter",
        f"There is no adapter {name!r}.",
        f"Did you mean {near[0]!r}?" if near else f"Known adapters: {', '.join(sorted(known))}.",
    )
