"""What every endpoint shares: scopes by method, strict input, pages.

An endpoint is one ``Endpoint`` per path. Each method reads its input here, calls a service or a
selector, and returns a ``Response``; errors are raised and become problem documents.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, ClassVar

from drf_spectacular.utils import OpenApiParameter, inline_serializer
from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail
from rest_framework.permissions import BasePermission, IsAuthenticated
from rest_framework.response import Response
from rest_framework.views import APIView

from qualityhub.accounts.access import Actor, actor_of, require_scope
from qualityhub.platform.idempotency import idempotent
from qualityhub.platform.paging import paginate
from qualityhub.platform.problems import BadQueryError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from django.db.models import QuerySet
    from rest_framework.request import Request

    from qualityhub.accounts.choices import Scope

MAX_QUERY_VALUE = 500


class Endpoint(APIView):
    """One path.

    Attributes:
        scopes: By HTTP method, the scopes of which a token needs one; ``HEAD`` is like ``GET``.
    """

    scopes: ClassVar[Mapping[str, Sequence[Scope]]] = {}

    def get_permissions(self) -> Sequence[BasePermission]:
        """Return what the method needs; to hear that it is not served needs no scope."""
        method = "GET" if self.request.method == "HEAD" else str(self.request.method)
        needed = self.scopes.get(method)
        scoped = [require_scope(*needed)()] if needed else []
        return [IsAuthenticated(), *scoped]

    @property
    def actor(self) -> Actor:
        """Who is asking."""
        return actor_of(self.request)

    def once(self, work: Callable[[], Response]) -> Response:
        """Do a POST's work in one transaction, once per ``Idempotency-Key``."""
        return idempotent(self.request, self.actor.key, work)

    def page(
        self,
        rows: QuerySet[Any],
        serializer: type[serializers.BaseSerializer[Any]],
        order: Sequence[str] = ("-id",),
    ) -> Response:
        """Return one page of a list."""
        page = paginate(self.request, rows, order)
        return Response(page.document(lambda row: serializer(row).data))


class StrictSerializer(serializers.Serializer[Any]):
    """Refuses members it does not know, and names the nearest one that it does.

    A number is no text: the framework would store ``123`` as ``"123"``.
    """

    def to_internal_value(self, data: Any) -> Any:
        """Read the members, after a look at their names and at what should be text."""
        if isinstance(data, dict):
            known = [name for name, field in self.fields.items() if not field.read_only]
            unknown = {
                str(name): [ErrorDetail(_unknown("member", str(name), known), "unknown")]
                for name in data
                if name not in known
            }
            if unknown:
                raise serializers.ValidationError(unknown)
            numbers = {
                name: found
                for name, value in data.items()
                if (found := _not_text(self.fields[name], value))
            }
            if numbers:
                raise serializers.ValidationError({**self._others(data, numbers), **numbers})
        return super().to_internal_value(data)

    def _others(self, data: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
        """Return the errors of the members that are not known to be wrong already."""
        try:
            super().to_internal_value(data)
        except serializers.ValidationError as error:
            found: dict[str, Any] = error.detail if isinstance(error.detail, dict) else {}
            return {name: detail for name, detail in found.items() if name not in known}
        return {}


def read_body(serializer: type[serializers.Serializer[Any]], request: Request) -> dict[str, Any]:
    """Return the checked body.

    Raises:
        ValidationError: Becomes a 422 problem whose ``errors`` point at each wrong member.
    """
    checked = serializer(data=request.data)
    checked.is_valid(raise_exception=True)
    found: dict[str, Any] = checked.validated_data
    return found


def read_query(request: Request, *names: str, paged: bool = False) -> dict[str, str]:
    """Return the query's values by name; names that were left out are missing.

    Raises:
        BadQueryError: An unknown or repeated name, or a value that no stored text can be.
    """
    known = [*names, *(("limit", "cursor") if paged else ())]
    values: dict[str, str] = {}
    for name, given in request.query_params.lists():
        if name not in known:
            raise BadQueryError("query.unknown", _unknown("parameter", name, known))
        value = given[-1]
        if len(given) > 1 or len(value) > MAX_QUERY_VALUE or "\0" in value:
            raise BadQueryError(
                "query.invalid",
                f"The parameter {name} is given twice, too long, or has a NUL character.",
            )
        if name in names and value:
            values[name] = value
    return values


def chosen(query: Mapping[str, str], name: str, choices: Sequence[str]) -> str:
    """Return a value of the query that is one of the choices, or empty.

    Raises:
        BadQueryError: Something else.
    """
    value = query.get(name, "")
    if value and value not in choices:
        raise BadQueryError("query.invalid", f"{name} is one of: {', '.join(choices)}.")
    return value


def query_parameters(**described: str) -> list[OpenApiParameter]:
    """Return optional text parameters for the schema, by name and description."""
    return [
        OpenApiParameter(name, str, OpenApiParameter.QUERY, description=description)
        for name, description in described.items()
    ]


PAGING_PARAMETERS = [
    OpenApiParameter(
        "limit", int, OpenApiParameter.QUERY, description="Rows per page, 1 to 200; 50 by default."
    ),
    OpenApiParameter(
        "cursor", str, OpenApiParameter.QUERY, description="As in the `next` link of a page."
    ),
]
IDEMPOTENCY_PARAMETER = OpenApiParameter(
    "Idempotency-Key",
    str,
    OpenApiParameter.HEADER,
    description="Makes the request safe to repeat for 24 hours.",
)


def page_of(name: str, item: type[serializers.BaseSerializer[Any]]) -> serializers.Serializer[Any]:
    """Return the schema of a page of such items."""
    return inline_serializer(
        f"{name}Page",
        {
            "results": item(many=True),
            "next": serializers.CharField(
                allow_null=True, help_text="Path and query of the next page; null on the last."
            ),
        },
    )


def _not_text(field: Any, value: Any) -> Any:
    """Return the errors of numbers where text belongs, also within lists and objects."""
    if isinstance(field, serializers.CharField) and isinstance(value, (int, float)):
        return [ErrorDetail("Not a valid string.", "invalid")]
    items: list[tuple[Any, Any]] = []
    if isinstance(field, serializers.ListField) and isinstance(value, list):
        items = [(str(place), item) for place, item in enumerate(value)]
    elif isinstance(field, serializers.DictField) and isinstance(value, dict):
        items = [(str(name), item) for name, item in value.items()]
    return {name: found for name, item in items if (found := _not_text(field.child, item))}


def _unknown(kind: str, name: str, known: Sequence[str]) -> str:
    near = get_close_matches(name, known, 1)
    shown = name if name.isprintable() and len(name) <= 60 else ascii(name[:60])
    if near:
        return f"There is no {kind} {shown!r}. Did you mean {near[0]!r}?"
    return f"There is no {kind} {shown!r}. Known: {', '.join(sorted(known)) or 'none'}."
