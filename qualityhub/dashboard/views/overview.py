"""The overview of domains, and one domain."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from django.conf import settings
from django.shortcuts import render
from django.views.decorators.http import require_safe

from qualityhub.accounts.choices import Role
from qualityhub.dashboard import queries
from qualityhub.dashboard.frame import member_page, page_of
from qualityhub.registry.access import access_domain
from qualityhub.registry.models import Environment

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

    from qualityhub.accounts.access import Actor


DOMAINS_PER_PAGE = 100
MANY_DOMAINS = 12


def may_add(actor: Actor) -> bool:
    """Tell whether the actor may upload anywhere."""
    return any(role.includes(Role.CONTRIBUTOR) for role in actor.roles.values())


@require_safe
@member_page
def overview(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Show every domain of the actor's teams, and the newest gate."""
    found = queries.overview(actor.team_ids)
    text = request.GET.get("q", "").strip()[:100]
    wanted = text.casefold()
    rows = [
        row
        for row in found.rows
        if wanted in row.overview.domain.slug or wanted in row.overview.domain.name.casefold()
    ]
    return render(
        request,
        "dashboard/overview.html",
        {
            "found": found,
            "page": page_of(request, rows, DOMAINS_PER_PAGE),
            "text": text,
            "many": len(found.rows) > MANY_DOMAINS,
            "several_teams": len(actor.team_ids) > 1,
            "may_add": may_add(actor),
            "public_url": settings.QH_PUBLIC_URL,
        },
    )


@require_safe
@member_page
def domain(request: HttpRequest, actor: Actor, ref: str) -> HttpResponse:
    """Show a domain's environments and its results in past gates."""
    found = access_domain(actor, ref)
    rows = Environment.objects.filter(domain=found).order_by("slug")
    page = page_of(request, rows, 100)
    states = queries.environment_states([found.team_id]).get(found.pk, Counter())
    return render(
        request,
        "dashboard/domain.html",
        {
            "domain": found,
            "page": page,
            "rows": queries.environment_rows(page.rows),
            "states": queries.in_order(states),
            "gates": queries.domain_gates(found),
            "may_add": actor.may(found.team_id, Role.CONTRIBUTOR),
        },
    )
