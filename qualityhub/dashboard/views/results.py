"""Audits, checkpoints and their evaluation runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.conf import settings
from django.shortcuts import render
from django.views.decorators.http import require_safe

from qualityhub.dashboard.frame import member_page, page_of
from qualityhub.gates.selectors import baseline_list, checkpoint_list, eval_run_list
from qualityhub.inspections.audits import audit_list

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

    from qualityhub.accounts.access import Actor
    from qualityhub.gates.models import EvalRun


@require_safe
@member_page
def audits(request: HttpRequest, actor: Actor) -> HttpResponse:
    """List the audits with what each of them changed."""
    rows = audit_list(actor.team_ids).order_by("-id")
    return render(
        request,
        "dashboard/audits.html",
        {
            "page": page_of(request, rows, 30),
            "hour": settings.QH_AUDIT_HOUR,
            "days": settings.QH_AUDIT_STALE_DAYS,
        },
    )


@require_safe
@member_page
def checkpoints(request: HttpRequest, actor: Actor) -> HttpResponse:
    """List checkpoints with their runs, and what is the baseline now."""
    page = page_of(request, checkpoint_list(actor.team_ids), 50)
    runs: dict[int, list[EvalRun]] = {}
    for run in eval_run_list(actor.team_ids).filter(checkpoint__in=page.rows):
        runs.setdefault(run.checkpoint_id, []).append(run)
    baselines: dict[int, list[str]] = {}
    for baseline in baseline_list(actor.team_ids):
        where = f" in {baseline.domain.slug}" if baseline.domain else ""
        baselines.setdefault(baseline.checkpoint_id, []).append(
            f"{baseline.get_kind_display()}{where}"
        )
    return render(
        request,
        "dashboard/checkpoints.html",
        {
            "page": page,
            "rows": [(row, runs.get(row.pk, ()), baselines.get(row.pk, ())) for row in page.rows],
        },
    )
