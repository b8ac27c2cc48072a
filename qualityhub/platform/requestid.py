"""The id of the request or task at hand, for logs, problems, audit rows and headers."""

from __future__ import annotations

import re
import secrets
from contextvars import ContextVar

ACCEPTED = re.compile(r"[A-Za-z0-9._-]{1,64}")
_current: ContextVar[str] = ContextVar("request_id", default="")


def current_request_id() -> str:
    """Return the id of the request or task at hand; empty outside of both."""
    return _current.get()


def bind_request_id(wanted: str = "") -> str:
    """Take the caller's id where it is harmless, else make one, and bind it to this context."""
    value = wanted if ACCEPTED.fullmatch(wanted) else secrets.token_hex(8)
    _current.set(value)
    return value
