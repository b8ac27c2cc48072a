"""Every error as one shape: an RFC 9457 problem document with a stable code."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from django.core.exceptions import (
    PermissionDenied as DjangoPermissionDenied,
)
from django.core.exceptions import (
    RequestDataTooBig,
    SuspiciousOperation,
)
from django.core.exceptions import (
    ValidationError as DjangoValidationError,
)
from django.db import DataError, IntegrityError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.template import TemplateDoesNotExist
from rest_framework import exceptions as drf
from rest_framework.response import Response

from qualityhub.engine import errors
from qualityhub.platform.requestid import current_request_id

if TYPE_CHECKING:
    from collections.abc import Mapping

logger = logging.getLogger(__name__)
CONTENT_TYPE = "application/problem+json"
STATUS_OF: tuple[tuple[type[errors.QualityHubError], int], ...] = (
    (errors.NotFoundError, 404),
    (errors.ForbiddenError, 403),
    (errors.ConflictError, 409),
    (errors.LimitExceededError, 413),
    (errors.InvalidInputError, 422),
    (errors.SandboxUnavailableError, 503),
)
CODE_OF: tuple[tuple[type[drf.APIException], str], ...] = (
    (drf.ParseError, "input.malformed"),
    (drf.NotAuthenticated, "auth.missing"),
    (drf.AuthenticationFailed, "auth.failed"),
    (drf.PermissionDenied, "access.forbidden"),
    (drf.NotFound, "access.not_found"),
    (drf.MethodNotAllowed, "http.method_not_allowed"),
    (drf.NotAcceptable, "http.not_acceptable"),
    (drf.UnsupportedMediaType, "http.unsupported_media_type"),
    (drf.Throttled, "http.throttled"),
)


class BadQueryError(errors.InvalidInputError):
    """The query part of the URL cannot be used; answered 400, unlike a bad body."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What went wrong, before it is written down.

    Attributes:
        status: HTTP status.
        code: Stable identifier.
        detail: One sentence about this occurrence.
        errors: ``{"pointer", "detail", "code"}`` per wrong member of the body.
        headers: Extra headers, such as ``Allow`` or ``Retry-After``.
        hint: What to do about it.
    """

    status: int
    code: str
    detail: str
    errors: tuple[dict[str, str], ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    hint: str = ""

    def document(self, instance: str) -> dict[str, Any]:
        """Return the document for one request path."""
        document: dict[str, Any] = {
            "type": f"urn:qualityhub:problem:{self.code}",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
            "instance": instance,
            "code": self.code,
            "request_id": current_request_id(),
        }
        if self.hint:
            document["hint"] = self.hint
        if self.errors:
            document["errors"] = list(self.errors)
        return document


UNFORESEEN = Problem(
    500, "machinery.unexpected", "Something of ours failed; the request id finds it in the log."
)


def exception_handler(error: Exception, context: Mapping[str, Any]) -> Response:
    """Answer any exception of an API view; what nobody foresaw is logged and says only its id."""
    # The views module loads the authentication classes, and with them models, on import.
    from rest_framework.views import set_rollback  # noqa: PLC0415

    problem = problem_of(error)
    if problem.status >= 500:
        logger.error(
            "unhandled_exception", exc_info=error, extra={"fields": {"code": problem.code}}
        )
    set_rollback()
    request = context.get("request")
    response = Response(
        problem.document(request.path if request is not None else ""),
        status=problem.status,
        headers=dict(problem.headers),
        content_type=CONTENT_TYPE,
    )
    response.exception = True
    return response


def problem_of(error: Exception) -> Problem:
    """Return the problem that an exception means."""
    if isinstance(error, errors.QualityHubError):
        return _ours(error)
    if isinstance(error, drf.ValidationError):
        return Problem(
            422,
            "input.invalid",
            "The input is not valid; see errors.",
            errors=tuple(_pointed("", error.detail)),
        )
    if isinstance(error, drf.APIException):
        return _framework(error)
    return _stored(error) or _django(error) or UNFORESEEN


def _stored(error: Exception) -> Problem | None:
    """Return what the database's refusal means; the log has its words, which name rows."""
    if isinstance(error, IntegrityError):
        logger.warning("integrity_conflict", exc_info=error)
        return Problem(409, "state.conflict", "This contradicts something stored already.")
    if isinstance(error, (DataError, UnicodeEncodeError)):
        # NUL, lone surrogates, numbers out of range: only the caller's text can hold such.
        logger.warning("not_storable", exc_info=error)
        return Problem(
            422, "input.not_storable", "The input holds text or numbers that cannot be stored."
        )
    return None


def _django(error: Exception) -> Problem | None:
    if isinstance(error, Http404):
        return Problem(404, "access.not_found", "There is no such thing here.")
    if isinstance(error, DjangoPermissionDenied):
        return Problem(403, "access.forbidden", str(error) or "This is not allowed.")
    if isinstance(error, DjangoValidationError):
        found = tuple({"pointer": "", "detail": text, "code": "invalid"} for text in error.messages)
        return Problem(422, "input.invalid", "The input is not valid.", errors=found)
    if isinstance(error, RequestDataTooBig):
        return Problem(413, "input.too_large", "The request body is too large.")
    if isinstance(error, SuspiciousOperation):
        return Problem(400, "input.malformed", "The request is malformed.")
    return None


def _ours(error: errors.QualityHubError) -> Problem:
    if isinstance(error, BadQueryError):
        return Problem(400, error.code, error.message, hint=error.hint)
    for kind, status in STATUS_OF:
        if isinstance(error, kind):
            pointer = getattr(error, "pointer", "")
            found = (
                ({"pointer": pointer, "detail": error.message, "code": error.code},)
                if pointer
                else ()
            )
            return Problem(status, error.code, error.message, errors=found, hint=error.hint)
    return Problem(500, error.code, error.message, hint=error.hint)


def _framework(error: drf.APIException) -> Problem:
    headers: dict[str, str] = {}
    challenge = getattr(error, "auth_header", "")
    if challenge:
        headers["WWW-Authenticate"] = challenge
    wait = getattr(error, "wait", None)
    if wait:
        headers["Retry-After"] = str(int(wait))
    code = next((code for kind, code in CODE_OF if isinstance(error, kind)), "http.error")
    given = getattr(error.detail, "code", "")
    if "." in given:  # A code of ours travelled through the framework's exception.
        code = given
    return Problem(int(error.status_code), code, str(error.detail), headers=headers)


def _pointed(pointer: str, detail: Any) -> list[dict[str, str]]:
    if isinstance(detail, dict):
        return [
            found
            for key, value in detail.items()
            for found in _pointed(
                pointer if key == "non_field_errors" else f"{pointer}/{_escaped(str(key))}", value
            )
        ]
    if isinstance(detail, list):
        nested = any(isinstance(item, (dict, list)) for item in detail)
        return [
            found
            for index, item in enumerate(detail)
            for found in _pointed(f"{pointer}/{index}" if nested else pointer, item)
        ]
    return [{"pointer": pointer, "detail": str(detail), "code": getattr(detail, "code", "invalid")}]


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def not_found_page(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer an unknown path: a problem below ``/api/``, a page elsewhere."""
    return _page(request, problem_of(Http404(str(exception))))


def forbidden_page(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer a refusal outside the API views."""
    return _page(request, problem_of(exception))


def bad_request_page(request: HttpRequest, exception: Exception) -> HttpResponse:
    """Answer a malformed request outside the API views."""
    return _page(request, problem_of(exception))


def server_error_page(request: HttpRequest) -> HttpResponse:
    """Answer a failure of ours outside the API views."""
    return _page(request, problem_of(RuntimeError()))


def _page(request: HttpRequest, problem: Problem) -> HttpResponse:
    document = problem.document(request.path)
    if request.path.startswith("/api/") or request.path == "/api":
        return JsonResponse(document, status=problem.status, content_type=CONTENT_TYPE)
    try:
        return render(request, f"errors/{problem.status}.html", document, status=problem.status)
    except TemplateDoesNotExist:
        return HttpResponse(
            f"{problem.status} {document['title']}\n{problem.detail}\n"
            f"Request {document['request_id']}\n",
            status=problem.status,
            content_type="text/plain; charset=utf-8",
        )
