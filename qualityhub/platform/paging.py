"""Cursor paging: stable under inserts, the same cost on every page."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from django.core.exceptions import ValidationError
from django.db.models import Field, Model, Q, QuerySet

from qualityhub.platform.problems import BadQueryError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rest_framework.request import Request

DEFAULT_LIMIT = 50
MAX_LIMIT = 200
Row = TypeVar("Row", bound=Model)


@dataclass(frozen=True, slots=True)
class Page(Generic[Row]):
    """One page of a list.

    Attributes:
        rows: The rows, at most ``limit``.
        next: Path and query of the next page, or None on the last one.
    """

    rows: list[Row]
    next: str | None

    def document(self, of: Callable[[Row], dict[str, Any]]) -> dict[str, Any]:
        """Return the answer's body."""
        return {"results": [of(row) for row in self.rows], "next": self.next}


def paginate(
    request: Request, queryset: QuerySet[Row], order: Sequence[str] = ("-id",)
) -> Page[Row]:
    """Return the page that ``limit`` and ``cursor`` of the request ask for.

    Args:
        request: Whose query is read.
        queryset: What is listed.
        order: Field names, ``-`` for descending; together unique and never null.

    Raises:
        BadQueryError: A limit out of range, or a cursor that is not one of ours.
    """
    limit = _limit(request.query_params.get("limit", ""))
    cursor = request.query_params.get("cursor", "")
    if cursor:
        queryset = queryset.filter(_after(queryset.model, order, _decode(cursor, order)))
    rows = list(queryset.order_by(*order)[: limit + 1])
    if len(rows) <= limit:
        return Page(rows, None)
    rows = rows[:limit]
    query = request.query_params.copy()
    query["cursor"] = _encode(rows[-1], order)
    return Page(rows, f"{request.path}?{query.urlencode()}")


def _limit(text: str) -> int:
    if not text:
        return DEFAULT_LIMIT
    if not (text.isascii() and text.isdigit() and len(text) < 9 and 1 <= int(text) <= MAX_LIMIT):
        raise BadQueryError(
            "paging.bad_limit", f"limit must be a whole number from 1 to {MAX_LIMIT}."
        )
    return int(text)


def _encode(row: Model, order: Sequence[str]) -> str:
    values = [_field(type(row), _name(key)).value_to_string(row) for key in order]
    return base64.urlsafe_b64encode(json.dumps(values).encode()).decode().rstrip("=")


def _decode(cursor: str, order: Sequence[str]) -> list[str]:
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        values = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (binascii.Error, ValueError) as error:
        raise _bad_cursor() from error
    if (
        not isinstance(values, list)
        or len(values) != len(order)
        or not all(isinstance(value, str) and "\0" not in value for value in values)
    ):
        raise _bad_cursor()
    return values


def _after(model: type[Model], order: Sequence[str], values: list[str]) -> Q:
    """Return "comes after these values", key by key, as OR of ANDs."""
    condition, equal = Q(), Q()
    for key, text in zip(order, values, strict=True):
        name = _name(key)
        try:
            value = _field(model, name).to_python(text)
        except (ValidationError, ValueError, OverflowError) as error:
            raise _bad_cursor() from error
        if isinstance(value, int) and abs(value) >= 2**63:
            raise _bad_cursor()
        beyond = Q(**{f"{name}__{'lt' if key.startswith('-') else 'gt'}": value})
        condition |= equal & beyond
        equal &= Q(**{name: value})
    return condition


def _field(model: type[Model], name: str) -> Field[Any, Any]:
    field = model._meta.get_field(name)  # noqa: SLF001 - Django's documented interface.
    if not isinstance(field, Field):
        raise TypeError(f"{name} is no column.")
    return field


def _name(key: str) -> str:
    return key.removeprefix("-")


def _bad_cursor() -> BadQueryError:
    return BadQueryError(
        "paging.bad_cursor", "The cursor is not one that this list gave out.", "Start without one."
    )
