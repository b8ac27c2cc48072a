"""Parse foreign JSON strictly: what two readers could read differently is refused."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from qualityhub.engine.environments.files import ReadLimits, lines, read_bytes, shown, too_large
from qualityhub.engine.errors import UnreadablePackageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

MAX_DEPTH = 100
_INTEGER_DIGITS = 1000


class _Refused(Exception):  # noqa: N818  Never leaves this module.
    """Why a document is refused."""


def parse_json(data: bytes, place: str) -> Any:
    """Return the parsed document.

    Args:
        data: UTF-8 bytes.
        place: File and line, for the message.

    Raises:
        UnreadablePackageError: ``package.bad_row``: no JSON, duplicate keys, NaN or infinities,
            numbers or nesting without measure, NUL characters or lone surrogates.
    """
    try:
        text = data.decode()
        value = _DECODER.decode(text)
        if data.count(b"[") + data.count(b"{") > MAX_DEPTH:
            _check_depth(value)
        if "\\u" in text:
            _check_text(value)
    except UnicodeDecodeError as error:
        raise _bad(place, f"not UTF-8 at byte {error.start}") from error
    except json.JSONDecodeError as error:
        raise _bad(place, f"not JSON: {error.msg} at column {error.colno}") from error
    except RecursionError as error:
        raise _bad(place, f"nested deeper than {MAX_DEPTH} levels") from error
    except _Refused as error:
        raise _bad(place, str(error)) from error
    return value


def read_rows(
    root: Path, relative: str, limits: ReadLimits, *, taken: int = 0
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the numbered objects of a JSONL file, plain or gzip-compressed, without empty lines.

    A file whose name ends with ``.json`` holds one list of objects, numbered from 1.

    Args:
        root: Folder of the package.
        relative: POSIX path below root.
        limits: How much is read.
        taken: Rows that other files of the package already used up.

    Raises:
        UnreadablePackageError: A line that is no JSON object, or a limit passed.
    """
    if relative.lower().endswith(".json"):
        yield from _listed(root, relative, limits, taken)
        return
    for number, line in lines(root, relative, limits):
        if not line.strip():
            continue
        taken += 1
        if taken > limits.rows:
            raise too_large(f"{shown(relative)}:{number} passes {limits.rows:,} rows.")
        value = parse_json(line, f"{relative}:{number}")
        if not isinstance(value, dict):
            raise _bad(f"{relative}:{number}", "no JSON object")
        yield number, value


def _listed(
    root: Path, relative: str, limits: ReadLimits, taken: int
) -> Iterator[tuple[int, dict[str, Any]]]:
    value = parse_json(read_bytes(root, relative, limits.file_bytes), relative)
    if not isinstance(value, list):
        raise bad_row(relative, "no list", "Write one JSON list of objects, or one per line.")
    if taken + len(value) > limits.rows:
        raise too_large(f"{shown(relative)} passes {limits.rows:,} rows.")
    for number, row in enumerate(value, 1):
        if not isinstance(row, dict):
            raise bad_row(f"{relative}:{number}", "no JSON object")
        yield number, row


def first_row(root: Path, relative: str, limits: ReadLimits) -> dict[str, Any] | None:
    """Return the first object of a JSONL file, or None where it does not start with one."""
    try:
        return next((row for _, row in read_rows(root, relative, limits)), None)
    except UnreadablePackageError as error:
        if error.code == "package.bad_row":
            return None
        raise


def first_problem(
    root: Path, files: Iterable[str], limits: ReadLimits
) -> UnreadablePackageError | None:
    """Return why the first file that does not start with an object does not, or None."""
    for relative in files:
        try:
            next(iter(read_rows(root, relative, limits)), None)
        except UnreadablePackageError as error:
            return error
    return None


def bad_row(place: str, message: str, hint: str = "") -> UnreadablePackageError:
    """Return the error for a row that the format cannot use."""
    return UnreadablePackageError("package.bad_row", f"{shown(place)}: {message}.", hint)


def _bad(place: str, why: str) -> UnreadablePackageError:
    return bad_row(place, why, "Write one strict JSON object per line.")


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        double = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise _Refused(f"the key {shown(double)!r} appears twice in one object")
    return result


def _constant(name: str) -> Any:
    raise _Refused(f"{name} is no JSON number")


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise _Refused(f"the number {shown(text[:40])} is too large")
    return value


def _integer(text: str) -> int:
    if len(text) > _INTEGER_DIGITS:
        raise _Refused(f"a number has more than {_INTEGER_DIGITS} digits")
    return int(text)


_DECODER = json.JSONDecoder(
    object_pairs_hook=_pairs, parse_constant=_constant, parse_float=_float, parse_int=_integer
)


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [item for box in level for item in _items(box)]
        if not level:
            return
    raise _Refused(f"nested deeper than {MAX_DEPTH} levels")


def _items(box: Any) -> list[Any]:
    if isinstance(box, dict):
        return list(box.values())
    return box if isinstance(box, list) else []


def _check_text(value: Any) -> None:
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            if "\0" in item:
                raise _Refused("a NUL character")
            if not item.isascii() and any("\ud800" <= char <= "\udfff" for char in item):
                raise _Refused("half of a surrogate pair")
        elif isinstance(item, dict):
            waiting.extend(item)
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)
