"""One request to the hub: retried where that is safe, and every refusal as our own error."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any

import httpx

from qualityhub import __version__
from qualityhub.client.config import checked_url
from qualityhub.engine import errors

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

IDEMPOTENT = frozenset({"GET", "HEAD", "PUT", "DELETE", "OPTIONS"})
KEY = "Idempotency-Key"
RETRIED = frozenset({429, 502, 503, 504})
IN_PROGRESS = "idempotency.in_progress"
FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 30.0
_KINDS: Mapping[int, type[errors.QualityHubError]] = {
    401: errors.ForbiddenError,
    403: errors.ForbiddenError,
    404: errors.NotFoundError,
    409: errors.ConflictError,
    413: errors.LimitExceededError,
    429: errors.LimitExceededError,
}


class Transport:
    """Sends requests to one hub.

    Args:
        url: The hub's address, without ``/api``.
        token: Access token, or an empty string.
        timeout_s: Seconds to wait for each part of an answer.
        retries: How often a safe request is sent again.
        transport: Instead of the network, for tests.
        sleep: Instead of waiting, for tests.
    """

    def __init__(
        self,
        url: str,
        token: str = "",
        *,
        timeout_s: float = 60.0,
        retries: int = 5,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        headers = {"User-Agent": f"qualityhub/{__version__}", "Accept": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        self.url = checked_url(url)
        self._retries = retries
        self._sleep = sleep
        # Redirects are not followed: the token must not reach an address nobody named.
        self._client = httpx.Client(
            base_url=self.url,
            headers=headers,
            timeout=httpx.Timeout(timeout_s, connect=10.0),
            transport=transport,
            follow_redirects=False,
        )

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def send(
        self,
        method: str,
        path: str,
        *,
        body: Callable[[], Mapping[str, Any]] = dict,
        headers: Mapping[str, str] | None = None,
        allowed: frozenset[int] = frozenset(),
    ) -> httpx.Response:
        """Send a request and return a successful answer.

        Args:
            method: HTTP method.
            path: Path from the hub's root.
            body: Returns httpx's arguments for the body; called anew for every attempt, so that
                files are read from their beginning.
            headers: Further headers; with an idempotency key a POST may be sent again.
            allowed: Statuses besides 2xx that are an answer, such as 304.

        Raises:
            QualityHubError: The hub refused, with its code and hint, or cannot be reached.
        """
        headers = dict(headers or {})
        safe = method in IDEMPOTENT or KEY in headers
        for attempt in range(self._retries + 1):
            last = attempt == self._retries or not safe
            try:
                response = self._client.request(method, path, headers=headers, **body())
            except httpx.TimeoutException as error:
                if last:
                    raise self._unreachable("hub.timeout", "did not answer in time") from error
            except httpx.TransportError as error:
                if last:
                    raise self._unreachable(
                        "hub.unreachable", f"cannot be reached: {error}"
                    ) from error
            except httpx.InvalidURL as error:
                raise errors.InvalidInputError("login.bad_url", f"{self.url}: {error}") from error
            else:
                if response.is_success or response.status_code in allowed:
                    return response
                if last or not retriable(response):
                    raise problem(response)
                self._sleep(wait_s(attempt, response.headers.get("Retry-After", "")))
                continue
            self._sleep(wait_s(attempt))
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _unreachable(self, code: str, how: str) -> errors.MachineryError:
        return errors.MachineryError(
            code, f"The hub at {self.url} {how}.", "Check the address (QH_URL) and that it runs."
        )


def retriable(response: httpx.Response) -> bool:
    """Say whether the same request may succeed in a moment."""
    if response.status_code in RETRIED:
        return True
    return response.status_code == 409 and document_of(response).get("code") == IN_PROGRESS


def wait_s(attempt: int, retry_after: str = "") -> float:
    """Return seconds to wait before the next attempt: what the hub asks for, else twice as long.

    Jitter keeps many clients from coming back together.
    """
    if retry_after.isascii() and retry_after.isdigit():
        return min(float(retry_after), LONGEST_WAIT_S)
    longest: float = min(FIRST_WAIT_S * 2**attempt, LONGEST_WAIT_S)
    return longest * random.uniform(0.5, 1.0)  # noqa: S311 - spreads load, guards nothing.


def problem(response: httpx.Response) -> errors.QualityHubError:
    """Return the error that a refusal means, with the hub's code, sentence and hint."""
    document = document_of(response)
    status = response.status_code
    if response.is_redirect:
        return errors.InvalidInputError(
            "hub.redirect",
            f"The hub answers that it lives at {response.headers.get('Location', '?')[:200]}.",
            "Use that address (QH_URL), with https where it says so.",
        )
    kind = _KINDS.get(status, errors.InvalidInputError if status < 500 else errors.MachineryError)
    code = str(document.get("code") or f"http.{status}")
    detail = str(document.get("detail") or f"The hub answered {status} {response.reason_phrase}.")
    members = document.get("errors")
    wrong = [
        f"{str(item.get('pointer', '')).lstrip('/') or 'body'}: {item.get('detail', '')}"
        for item in (members if isinstance(members, list) else [])[:5]
        if isinstance(item, dict)
    ]
    message = f"{detail} {'; '.join(wrong)}".strip() if wrong else detail
    hint = str(document.get("hint") or "")
    if status == 401 and not hint:
        hint = "Run 'qualityhub login', or set QH_TOKEN."
    if status >= 500 and document.get("request_id"):
        hint = f"{hint} Request id: {document['request_id']}".strip()
    return kind(code, message, hint)


def document_of(response: httpx.Response) -> dict[str, Any]:
    """Return the JSON object of an answer, or an empty one."""
    try:
        document = response.json()
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
