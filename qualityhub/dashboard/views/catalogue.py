"""The catalogue of rules."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from django.shortcuts import render
from django.views.decorators.http import require_safe

from qualityhub.dashboard.frame import member_page
from qualityhub.engine.errors import NotFoundError
from qualityhub.engine.rules.catalogue import CATALOGUE
from qualityhub.engine.rules.pages import COSTS, applies_to, family_title
from qualityhub.inspections.selectors import finding_list

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

    from qualityhub.accounts.access import Actor

SHOWN_FINDINGS = 20


@require_safe
@member_page
def rules(request: HttpRequest, actor: Actor) -> HttpResponse:
    """List every rule by family."""
    del actor
    families = [
        (family_title(family), list(members))
        for family, members in groupby(CATALOGUE.values(), key=lambda rule: rule.code[:3])
    ]
    return render(request, "dashboard/rules.html", {"families": families, "count": len(CATALOGUE)})


@require_safe
@member_page
def rule(request: HttpRequest, actor: Actor, code: str) -> HttpResponse:
    """Show one rule's page, and where it strikes today."""
    found = CATALOGUE.get(code.upper())
    if found is None:
        raise NotFoundError("rule.not_found", "There is no such rule.")
    rows = finding_list(actor.team_ids).filter(code=found.code).order_by("-id")
    return render(
        request,
        "dashboard/rule.html",
        {
            "rule": found,
            "family": family_title(found.code),
            "cost": COSTS[found.cost],
            "applies": applies_to(found),
            "measures": found.measures(),
            "findings": rows[:SHOWN_FINDINGS],
        },
    )
