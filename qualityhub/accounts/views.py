"""Pages: signing in by link, signing out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib.auth import login, logout
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from qualityhub.accounts.services import sign_in_link_find, sign_in_link_use

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

BACKEND = "django.contrib.auth.backends.ModelBackend"


@require_safe
@never_cache
def sign_in(request: HttpRequest) -> HttpResponse:
    """Say how to get a sign-in link."""
    if request.user.is_authenticated:
        return redirect("/")
    return render(request, "accounts/sign_in.html")


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
    return redirect("/")


@require_POST
def sign_out(request: HttpRequest) -> HttpResponse:
    """End the session."""
    logout(request)
    return redirect("accounts:sign-in")
