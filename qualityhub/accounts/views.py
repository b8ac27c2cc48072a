"""Pages: signing in by link, signing out.

Whoever asked for a page and had to sign in first lands there afterwards: its path waits in a short
cookie, since the link that signs in is another request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib.auth import login, logout
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.encoding import iri_to_uri
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from qualityhub.accounts.services import sign_in_link_find, sign_in_link_use

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

BACKEND = "django.contrib.auth.backends.ModelBackend"
WANTED_COOKIE = "qh_next"
WANTED_S = 3600
LONGEST_WANTED = 1000


@require_safe
@never_cache
def sign_in(request: HttpRequest) -> HttpResponse:
    """Say how to get a sign-in link, and keep in mind which page was asked for."""
    wanted = _local(request.GET.get("next", ""))
    if request.user.is_authenticated:
        return redirect(wanted or "/")
    response = render(request, "accounts/sign_in.html")
    if wanted:
        response.set_cookie(
            WANTED_COOKIE,
            wanted,
            max_age=WANTED_S,
            path=reverse("accounts:sign-in"),
            secure=request.is_secure(),
            httponly=True,
            samesite="Lax",
        )
    return response


@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def sign_in_link(request: HttpRequest, secret: str) -> HttpResponse:
    """Ask for a click, then sign in.

    Mail scanners and chat previews open links: so a GET never uses one up.
    """
    if request.method != "POST":
        link = sign_in_link_find(secret)
        return render(
            request,
            "accounts/sign_in_link.html",
            {"link": link},
            status=200 if link else 404,
        )
    user = sign_in_link_use(secret)
    if user is None:
        return render(request, "accounts/sign_in_link.html", {"link": None}, status=404)
    login(request, user, backend=BACKEND)
    response = redirect(_local(request.COOKIES.get(WANTED_COOKIE, "")) or "/")
    response.delete_cookie(WANTED_COOKIE, path=reverse("accounts:sign-in"), samesite="Lax")
    return response


@require_POST
def sign_out(request: HttpRequest) -> HttpResponse:
    """End the session."""
    logout(request)
    return redirect("accounts:sign-in")


def _local(path: str) -> str:
    """Return a path of this hub as it may stand in a header; empty for anything else."""
    if not path.startswith("/") or not url_has_allowed_host_and_scheme(path, allowed_hosts=None):
        return ""
    safe = iri_to_uri(path)
    return safe if len(safe) <= LONGEST_WANTED else ""
