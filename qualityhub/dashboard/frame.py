"""What every page shares: who may look, what errors look like, pages of a list."""

from __future__ import annotations

from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar

from django.contrib.auth.decorators import login_required
from django.db.models import QuerySet
from django.shortcuts import render
from django.views.decorators.cache import never_cache

from qualityhub.accounts.access import Actor, actor_of
from qualityhub.engine.errors import QualityHubError
from qualityhub.platform.problems import problem_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from django.http import HttpRequest, HttpResponse

Given = ParamSpec("Given")
Row = TypeVar("Row")
MOST_PAGES = 100_000


def member_page(
    view: Callable[Concatenate[HttpRequest, Actor, Given], HttpResponse],
) -> Callable[Concatenate[HttpRequest, Given], HttpResponse]:
    """Ask for a sign-in, hand the view its actor, and show our own errors as pages.

    What the actor may not know of is answered like what does not exist. Pages hold what only the
    team may see: no cache keeps them.
    """

    @wraps(view)
    def page(request: HttpRequest, /, *args: Given.args, **kwargs: Given.kwargs) -> HttpResponse:
        try:
            return view(request, actor_of(request), *args, **kwargs)
        except QualityHubError as error:
            return problem_page(request, error)

    return never_cache(login_required(page))


def problem_page(request: HttpRequest, error: Exception) -> HttpResponse:
    """Return the page that says what went wrong."""
    problem = problem_of(error)
    document = problem.document(request.path)
    name = "errors/404.html" if problem.status == 404 else "errors/problem.html"
    return render(request, name, document, status=problem.status)


@dataclass(frozen=True, slots=True)
class Page(Generic[Row]):
    """Some rows of a list.

    Attributes:
        rows: Those of this page.
        number: From 1.
        more: Whether another page follows.
        total: How many there are, where that was counted.
        size: Rows per page.
    """

    rows: Sequence[Row]
    number: int
    more: bool
    total: int | None
    size: int

    @property
    def first(self) -> int:
        """Place of the first row, from 1."""
        return (self.number - 1) * self.size + 1

    @property
    def last(self) -> int:
        """Place of the last row."""
        return self.first + len(self.rows) - 1


def page_of(
    request: HttpRequest,
    rows: QuerySet[Any] | Sequence[Row],
    size: int = 50,
    *,
    key: str = "page",
    total: int | None = None,
) -> Page[Any]:
    """Return the page that the query asks for; what is no number is page 1.

    Args:
        request: Whose query is read.
        rows: All of them, not yet read.
        size: Rows per page.
        key: Name in the query.
        total: How many there are, where that is known.
    """
    text = request.GET.get(key, "")
    number = min(max(int(text), 1), MOST_PAGES) if text.isdecimal() and len(text) < 10 else 1
    start = (number - 1) * size
    found = list(rows[start : start + size + 1])
    if total is None and not isinstance(rows, QuerySet):
        total = len(rows)
    return Page(found[:size], number, len(found) > size, total, size)


def chosen(request: HttpRequest, allowed: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return the filters of the query that hold one of the allowed values."""
    return {
        name: request.GET[name]
        for name, values in allowed.items()
        if request.GET.get(name) in values
    }
