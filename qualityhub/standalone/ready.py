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
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 80, timeout=timeout)
    try:
        # The name it is asked for must be one that it answers to.
        connection.request("GET", "/readyz", headers={"Host": parts.netloc})
        response = connection.getresponse()
        body = response.read(65536)
    except (OSError, http.client.HTTPException) as error:
        return False, {"web": type(error).__name__}
    finally:
        connection.close()
    try:
        answer: Any = json.loads(body)
        checks = answer["checks"].items()
        failed = {name: str(check["detail"]) for name, check in checks if not check["ok"]}
        return bool(answer["ready"]), failed
    except (ValueError, KeyError, TypeError, AttributeError):
        return False, {"web": f"status {response.status}"}
