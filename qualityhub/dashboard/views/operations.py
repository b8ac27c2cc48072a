"""What the operators of the hub look at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.conf import settings
from django.shortcuts import render
from django.views.decorators.http import require_safe

from qualityhub.accounts.access import check_operator
from qualityhub.dashboard.frame import member_page
from qualityhub.inspections.workers import queue_depth, worker_states

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

    from qualityhub.accounts.access import Actor


@require_safe
@member_page
def workers(request: HttpRequest, actor: Actor) -> HttpResponse:
    """List the workers, what each can do and does, and what waits for one."""
    check_operator(actor)
    rows = worker_states()
    return render(
        request,
        "dashboard/workers.html",
        {
            "rows": rows,
            "live": sum(row.live for row in rows),
            "depth": queue_depth(),
            "patience_min": round(settings.QH_WORKER_PATIENCE_S / 60),
        },
    )
