"""Inspections: the list, one report, its findings, its files, its progress."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from qualityhub.accounts.choices import Role
from qualityhub.dashboard import queries
from qualityhub.dashboard.frame import chosen, member_page, page_of
from qualityhub.dashboard.reports import finding_views, report_view
from qualityhub.engine.errors import NotFoundError
from qualityhub.engine.reports.json import dumps
from qualityhub.engine.reports.markdown import inspection_markdown
from qualityhub.engine.reports.safe import public_evidence
from qualityhub.engine.reports.sarif import inspection_sarif
from qualityhub.engine.rules.catalogue import CATALOGUE
from qualityhub.inspections.access import access_inspection
from qualityhub.inspections.choices import OPEN, InspectionStatus
from qualityhub.inspections.services import inspection_cancel
from qualityhub.registry.selectors import domain_list

if TYPE_CHECKING:
    from qualityhub.accounts.access import Actor
    from qualityhub.inspections.models import Inspection

INSPECTION_VERDICTS = ("admitted", "partial", "rejected", "pending", "error")
LEVELS = ("error", "warning", "info", "lead")
TYPES = {"json": "application/json", "sarif": "application/sarif+json", "md": "text/markdown"}
FINDINGS_PER_PAGE = 50
DONE_WORDS = {"queued": "Waiting for a worker", "preparing": "Building what the trials run in"}


@require_safe
@member_page
def inspections(request: HttpRequest, actor: Actor) -> HttpResponse:
    """List inspections, newest first; the address holds the filters."""
    domains = list(domain_list(actor).order_by("slug"))
    wanted = chosen(
        request,
        {
            "domain": [row.slug for row in domains],
            "verdict": INSPECTION_VERDICTS,
            "status": InspectionStatus.values,
        },
    )
    names = {"domain": "domain__slug"}
    rows = queries.inspection_rows(actor.team_ids).filter(
        **{names.get(name, name): value for name, value in wanted.items()}
    )
    return render(
        request,
        "dashboard/inspections.html",
        {
            "page": page_of(request, rows),
            "wanted": wanted,
            "domains": domains,
            "verdicts": INSPECTION_VERDICTS,
            "statuses": InspectionStatus.values,
        },
    )


@require_safe
@member_page
def inspection(request: HttpRequest, actor: Actor, insp_id: str) -> HttpResponse:
    """Show one inspection, under way or with its report."""
    found = access_inspection(actor, insp_id)
    return render(
        request,
        "dashboard/inspection.html",
        {
            "inspection": found,
            "environment": found.version.environment,
            "version": found.version,
            "running": found if found.status in OPEN else None,
            "report": report_view(found.report) if found.report else None,
            "may_change": actor.may(found.team_id, Role.CONTRIBUTOR),
        },
    )


@require_safe
@member_page
def findings(request: HttpRequest, actor: Actor, insp_id: str) -> HttpResponse:
    """Show all findings of an inspection, by rule, level or task."""
    found = access_inspection(actor, insp_id)
    document = _document(found)
    codes = sorted({finding["code"] for finding in document["findings"]})
    wanted = chosen(request, {"code": codes, "level": LEVELS})
    task = request.GET.get("task", "")
    rows = [
        finding
        for finding in document["findings"]
        if wanted.get("code", finding["code"]) == finding["code"]
        and wanted.get("level", _level(finding)) == _level(finding)
        and (not task or finding["task"] == task)
    ]
    page = page_of(request, rows, FINDINGS_PER_PAGE)
    return render(
        request,
        "dashboard/findings.html",
        {
            "inspection": found,
            "environment": found.version.environment,
            "page": page,
            "findings": finding_views(page.rows),
            "wanted": wanted,
            "task": task,
            "codes": codes,
            "levels": LEVELS,
        },
    )


@require_safe
@member_page
def report_file(request: HttpRequest, actor: Actor, insp_id: str, kind: str) -> HttpResponse:
    """Return the report as a file that may leave the hub: without answer keys."""
    del request
    found = access_inspection(actor, insp_id)
    document = _document(found)
    document = {
        **document,
        "findings": [
            {**finding, "evidence": public_evidence(finding["evidence"])}
            for finding in document["findings"]
        ],
    }
    if kind == "json":
        text = dumps(document)
    elif kind == "sarif":
        text = inspection_sarif([document], catalogue=CATALOGUE)
    else:
        text = inspection_markdown([document])
    name = f"{found.version.environment.slug}-{found.public_id[5:13]}.{kind}"
    return HttpResponse(
        text.encode("utf-8", "backslashreplace"),
        content_type=f"{TYPES[kind]}; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


@require_safe
@member_page
def progress(request: HttpRequest, actor: Actor, insp_id: str) -> JsonResponse:
    """Say how far an inspection is, for the page that waits for it."""
    del request
    return JsonResponse(progress_of(access_inspection(actor, insp_id)))


@require_POST
@member_page
def cancel(request: HttpRequest, actor: Actor, insp_id: str) -> HttpResponse:
    """End an inspection without a verdict."""
    del request
    found = access_inspection(actor, insp_id, Role.CONTRIBUTOR)
    inspection_cancel(found, actor=str(actor))
    return redirect("dashboard:inspection", found.public_id)


def progress_of(found: Inspection) -> dict[str, Any]:
    """Return status, counts and a sentence."""
    done, total = found.trials_done, found.trials_total
    if found.status not in OPEN:
        message = "It has ended"
    elif found.waits_for:
        message = f"Pending: {found.waits_for}"
    elif total:
        message = f"{done:,} of {total:,} trials so far, round {found.round}"
    else:
        message = DONE_WORDS.get(found.status, "At work")
    return {
        "status": found.status,
        "ended": found.status not in OPEN,
        "done": done,
        "total": total,
        "message": message,
    }


def _document(found: Inspection) -> dict[str, Any]:
    if not found.report:
        raise NotFoundError("inspection.no_report", "This inspection has no report.")
    report: dict[str, Any] = found.report
    return report


def _level(finding: dict[str, Any]) -> str:
    return "lead" if finding["kind"] == "lead" else str(finding["severity"])
