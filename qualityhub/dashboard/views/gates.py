"""Gates: the list, one report, its figure and its file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from qualityhub.dashboard import gate_report
from qualityhub.dashboard.frame import chosen, member_page, page_of
from qualityhub.engine.errors import NotFoundError
from qualityhub.engine.reports.figures import Theme, gate_interval_figure
from qualityhub.engine.reports.json import dumps
from qualityhub.gates.access import access_gate
from qualityhub.gates.choices import GateStatus, Verdict
from qualityhub.gates.models import Gate

if TYPE_CHECKING:
    from qualityhub.accounts.access import Actor


@require_safe
@member_page
def gates(request: HttpRequest, actor: Actor) -> HttpResponse:
    """List gates, newest first; the address holds the filters."""
    wanted = chosen(request, {"verdict": Verdict.values, "status": GateStatus.values})
    rows = (
        Gate.objects.filter(team__in=actor.team_ids, **wanted)
        .select_related("candidate", "baseline", "policy_row")
        .defer("report", "inputs")
        .order_by("-id")
    )
    return render(
        request,
        "dashboard/gates.html",
        {
            "page": page_of(request, rows),
            "wanted": wanted,
            "verdicts": Verdict.values,
            "statuses": GateStatus.values,
        },
    )


@require_safe
@member_page
def gate(request: HttpRequest, actor: Actor, gate_id: str) -> HttpResponse:
    """Show one gate: the verdict, the chart, the table, and what lies behind each domain."""
    found = access_gate(actor, gate_id)
    context: dict[str, Any] = {"gate": found, "waiting": found.status == GateStatus.WAITING}
    if found.report:
        document = found.report
        meaning, step = gate_report.MEANING[document["verdict"]]
        levels = [document["overall"]] if document.get("overall") else []
        context |= {
            "document": document,
            "meaning": meaning,
            "step": step,
            "levels": [*levels, *document.get("groups", ())],
            "details": gate_report.domain_details(document, request.GET.get("domain", "")),
            "sides": [
                (name, side)
                for name in ("candidate", "baseline")
                if (side := (document.get("inputs") or {}).get(name))
            ],
            "inputs": dumps(document.get("inputs") or {}),
            "policy": dumps(document.get("policy") or {}),
        }
    return render(request, "dashboard/gate.html", context)


@require_safe
@member_page
def figure(request: HttpRequest, actor: Actor, gate_id: str) -> JsonResponse:
    """Return the interval chart for plotly, drawn for ``theme``."""
    theme: Theme = "dark" if request.GET.get("theme") == "dark" else "light"
    return JsonResponse(gate_interval_figure(_document(actor, gate_id), theme))


@require_safe
@member_page
def report_file(request: HttpRequest, actor: Actor, gate_id: str) -> HttpResponse:
    """Return the decision as a JSON file."""
    del request
    return HttpResponse(
        dumps(_document(actor, gate_id)),
        content_type="application/json",
        headers={"Content-Disposition": f'attachment; filename="{gate_id[:13]}.json"'},
    )


def _document(actor: Actor, gate_id: str) -> dict[str, Any]:
    found = access_gate(actor, gate_id)
    if not found.report:
        raise NotFoundError("gate.no_report", "This gate is not decided.")
    document: dict[str, Any] = found.report
    return document
