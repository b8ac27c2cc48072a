"""Validators: does the caller hold what would be sent?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.utils.http import parse_etags

if TYPE_CHECKING:
    from rest_framework.request import Request


def caller_has(request: Request, *etags: str) -> bool:
    """Tell whether ``If-None-Match`` names one of these, by the weak comparison of RFC 9110.

    Args:
        request: A GET or HEAD for something that exists; ``*`` means any state of it.
        etags: Quoted validators of the present state, one per way of sending it.
    """
    given = request.headers.get("If-None-Match", "")
    return any(mark == "*" or mark.removeprefix("W/") in etags for mark in parse_etags(given))
