"""Middleware: request ids and the content security policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qualityhub.platform.requestid import bind_request_id

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.http import HttpRequest, HttpResponse

# Scripts come from files of ours alone. Styles may be inline: charts set them from script.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)


class RequestIdMiddleware:
    """Binds a request id and returns it as ``X-Request-ID``; API answers carry ``API-Version``."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Answer the request."""
        request_id = bind_request_id(request.headers.get("X-Request-ID", ""))
        response = self.get_response(request)
        response["X-Request-ID"] = request_id
        if request.path.startswith("/api/"):
            response["API-Version"] = "1"
        return response


class ContentSecurityMiddleware:
    """Sends the content security policy with every page."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Answer the request."""
        response = self.get_response(request)
        response.headers.setdefault("Content-Security-Policy", POLICY)
        return response
