"""Ask the hub whether it is ready."""

from __future__ import annotations

import http.client
import json
from typing import Any
from urllib.parse import urlsplit

TIMEOUT_S = 5


def readiness(url: str, timeout: float = TIMEOUT_S) -> tuple[bool, dict[str, str]]:
    """Return whether the hub is ready, and what is missing.

    Args:
        url: The hub's address; plain HTTP.
        timeout: Seconds to wait for the answer.

    Returns:
        Ready or not, and check → detail for every check that fails; ``web`` when the hub does not
        answer at all.
    """
    try:
        status, body = _asked(url, timeout)
    except (OSError, http.client.HTTPException) as error:
        return False, {"web": type(error).__name__}
    try:
        answer: Any = json.loads(body)
        checks = answer["checks"].items()
        failed = {name: str(check["detail"]) for name, check in checks if not check["ok"]}
        return bool(answer["ready"]), failed
    except (ValueError, KeyError, TypeError, AttributeError):
        return False, {"web": f"status {status}"}


def live_workers(url: str, timeout: float = TIMEOUT_S) -> int | None:
    """Return how many workers the hub sees, on whatever host, or None where it does not say."""
    try:
        count = json.loads(_asked(url, timeout)[1])["workers"]
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
        return None
    return count if isinstance(count, int) else None


def _asked(url: str, timeout: float) -> tuple[int, bytes]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 80, timeout=timeout)
    try:
        # The name it is asked for must be one that it answers to.
        connection.request("GET", "/readyz", headers={"Host": parts.netloc})
        response = connection.getresponse()
        return response.status, response.read(65536)
    finally:
        connection.close()
