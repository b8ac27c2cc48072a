"""Tokens: create, list, revoke."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.contrib import messages
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST

from qualityhub.accounts.access import access_team, access_token
from qualityhub.accounts.choices import Scope
from qualityhub.accounts.selectors import membership_list, token_list
from qualityhub.accounts.services import token_create, token_revoke
from qualityhub.dashboard.forms import TokenForm
from qualityhub.dashboard.frame import member_page
from qualityhub.engine.errors import QualityHubError

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

    from qualityhub.accounts.access import Actor
    from qualityhub.accounts.models import ApiToken


@require_http_methods(["GET", "HEAD", "POST"])
@member_page
def tokens(request: HttpRequest, actor: Actor) -> HttpResponse:
    """List tokens and create one; its text is part of this one answer and kept nowhere."""
    teams = [membership.team for membership in membership_list(actor)]
    form = TokenForm(request.POST or None, teams=teams)
    context: dict[str, Any] = {"form": form, "several_teams": len(teams) > 1}
    status = 200
    if request.method == "POST":
        created = _create(form, actor) if form.is_valid() else None
        if created is None:
            status = 422
        else:
            context |= {"plain": created[1], "created": created[0]}
            context["form"] = TokenForm(None, teams=teams)
    context["rows"] = [
        (token, _state(token))
        for token in token_list(actor).order_by("revoked_at", "-id").distinct()[:200]
    ]
    return render(request, "dashboard/tokens.html", context, status=status)


@require_POST
@member_page
def revoke(request: HttpRequest, actor: Actor, token_id: str) -> HttpResponse:
    """Make a token useless."""
    token = access_token(actor, token_id)
    token_revoke(token, actor=str(actor))
    messages.success(request, f"The token {token.name} works no more.", extra_tags="good")
    return redirect("dashboard:tokens")


def _create(form: TokenForm, actor: Actor) -> tuple[ApiToken, str] | None:
    fields = form.cleaned_data
    try:
        team = access_team(actor, fields["team"] or None)
        days = fields["days"]
        return token_create(
            user=actor.user,
            team=team,
            name=fields["name"],
            scopes=[Scope(scope) for scope in fields["scopes"]],
            expires_at=timezone.now() + timedelta(days=int(days)) if days else None,
            actor=str(actor),
        )
    except QualityHubError as error:
        form.add_error(None, f"{error.message} {error.hint}".strip())
        return None


def _state(token: ApiToken) -> str:
    if token.revoked_at is not None:
        return "revoked"
    if token.expires_at is not None and token.expires_at <= timezone.now():
        return "expired"
    return "active"
