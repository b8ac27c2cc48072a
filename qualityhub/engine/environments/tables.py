"""Check parsed TOML tables against a declared shape: wrong types stop, unknown keys are named."""

from __future__ import annotations

import datetime as dt
import math
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from qualityhub.engine.environments.files import read_text, shown
from qualityhub.engine.errors import UnreadablePackageError

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Kind:
    """One type of value.

    Attributes:
        says: What a person should write.
        fits: Whether a value is one.
    """

    says: str
    fits: Callable[[Any], bool]


def _number(value: Any) -> bool:
    if isinstance(value, int):
        return not isinstance(value, bool) and abs(value) < 2**53
    return isinstance(value, float) and math.isfinite(value)


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


TEXT = Kind("text", lambda value: isinstance(value, str) and "\0" not in value)
FLAG = Kind("true or false", lambda value: isinstance(value, bool))
NUMBER = Kind("a number", _number)
POSITIVE = Kind("a number above 0", lambda value: _number(value) and value > 0)
COUNT = Kind(
    "a whole number, 0 or more",
    lambda value: isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53,
)
TEXTS = Kind("a list of texts", _texts)
TABLE = Kind("a table", lambda value: isinstance(value, dict))
TEXT_TABLE = Kind(
    "a table of texts",
    lambda value: isinstance(value, dict) and all(isinstance(item, str) for item in value.values()),
)
ANY = Kind("anything", lambda _: True)


def choice(*words: str) -> Kind:
    """Return the kind of one word out of several."""
    return Kind(f"one of {', '.join(words)}", lambda value: value in words)


def either(*kinds: Kind) -> Kind:
    """Return the kind that is one of several kinds."""
    return Kind(
        " or ".join(kind.says for kind in kinds),
        lambda value: any(kind.fits(value) for kind in kinds),
    )


@dataclass(frozen=True, slots=True)
class Several:
    """A list of tables of one shape; items of kind ``instead`` are accepted beside them."""

    shape: Shape
    instead: Kind | None = None


Shape = Mapping[str, "Kind | Several | Shape"]


@dataclass(frozen=True, slots=True)
class UnknownKey:
    """A key that the shape does not have.

    Attributes:
        table: Dotted name of its table, empty at the top.
        key: As written.
        known: Keys that the table has.
    """

    table: str
    key: str
    known: tuple[str, ...]

    @property
    def says(self) -> str:
        """Return the sentence."""
        where = f"[{self.table}]" if self.table else "the top level"
        return f"Unknown key {shown(self.key)!r} in {where}."

    @property
    def hint(self) -> str:
        """Return a did-you-mean, or the known keys."""
        near = get_close_matches(self.key, self.known, n=1)
        return f"Did you mean {near[0]!r}?" if near else f"Known keys: {', '.join(self.known)}."


def read_toml(root: Path, relative: str) -> dict[str, Any]:
    """Return a parsed TOML file.

    Raises:
        UnreadablePackageError: Unreadable, not UTF-8, or not TOML.
    """
    return parse_toml(read_text(root, relative), relative)


def parse_toml(text: str, place: str) -> dict[str, Any]:
    """Return parsed TOML text.

    Raises:
        UnreadablePackageError: Not TOML.
    """
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        why = str(error) if isinstance(error, ValueError) else "nested too deep"
        raise UnreadablePackageError(
            "package.bad_toml", f"{shown(place)} is not TOML: {why}.", "Correct the file."
        ) from error


def check_table(
    table: Mapping[str, Any], shape: Shape, place: str, name: str = ""
) -> Iterator[UnknownKey]:
    """Yield the unknown keys of a table and of the tables in it.

    Args:
        table: Parsed TOML.
        shape: Kind, list or table by key.
        place: File name, for messages.
        name: Dotted name of the table.

    Raises:
        UnreadablePackageError: ``package.wrong_type``.
    """
    for key, value in table.items():
        dotted = f"{name}.{key}" if name else key
        wanted = shape.get(key)
        if wanted is None:
            yield UnknownKey(name, key, tuple(sorted(shape)))
        elif isinstance(wanted, Kind):
            if not wanted.fits(value):
                raise wrong_type(place, dotted, wanted.says)
        elif isinstance(wanted, Several):
            yield from _check_list(value, wanted, place, dotted)
        elif isinstance(value, dict):
            yield from check_table(value, wanted, place, dotted)
        else:
            raise wrong_type(place, dotted, "a table")


def wrong_type(place: str, key: str, says: str) -> UnreadablePackageError:
    """Return the error for a value of the wrong type."""
    return UnreadablePackageError(
        "package.wrong_type", f"{shown(place)}: {shown(key)} must be {says}.", "Correct the value."
    )


def plain(value: Any) -> Any:
    """Return a TOML value as JSON can say it: dates and what is not finite become text."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, (dt.date, dt.time)):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _check_list(value: Any, wanted: Several, place: str, name: str) -> Iterator[UnknownKey]:
    if not isinstance(value, list):
        raise wrong_type(place, name, "a list of tables")
    for item in value:
        if wanted.instead is not None and wanted.instead.fits(item):
            continue
        if not isinstance(item, dict):
            raise wrong_type(place, name, "a list of tables")
        yield from check_table(item, wanted.shape, place, name)
