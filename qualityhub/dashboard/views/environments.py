"""One environment: its verdict and why, its findings, tasks and history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import messages
from django.db.models import Count
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from qualityhub.accounts.choices import Role
from qualityhub.dashboard import queries
from qualityhub.dashboard.frame import chosen, member_page, page_of
from qualityhub.dashboard.reports import report_view
from qualityhub.inspections.models import Finding
from qualityhub.inspections.selectors import inspection_list
from qualityhub.inspections.services import inspection_start
from qualityhub.platform.ids import is_public_id
from qualityhub.registry.access import access_environment, access_version
from qualityhub.registry.models import EnvironmentVersion, Task
from qualityhub.registry.selectors import version_latest

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

    from qualityhub.accounts.access import Actor
    from qualityhub.registry.models import Environment

TASKS_PER_PAGE = 100
SHOWN_VERSIONS = 20
SHOWN_INSPECTIONS = 20
ADMITTED: dict[str, bool | None] = {"admitted": True, "quarantined": False, "pending": None}
WORDS = {value: key for key, value in ADMITTED.items()}


@require_safe
@member_page
def environment(request: HttpRequest, actor: Actor, env_id: str) -> HttpResponse:
    """Show an environment: its newest version, or the one that ``version`` names."""
    found = access_environment(actor, env_id)
    newest = version_latest(found)
    version = _asked(found, request.GET.get("version", "")) or newest
    context: dict[str, Any] = {
        "environment": found,
        "version": version,
        "is_newest": version == newest,
        "may_change": actor.may(found.team_id, Role.CONTRIBUTOR),
    }
    if version is not None:
        newest_first = EnvironmentVersion.objects.filter(environment=found).order_by("-id")
        listed = list(newest_first[:SHOWN_VERSIONS])
        rows = queries.version_rows([*listed, *([] if version in listed else [version])])
        row = next(row for row in rows if row.version == version)
        shown = row.decided
        context |= {
            "row": row,
            "inspection": shown,
            "running": row.running,
            "report": report_view(shown.report) if shown is not None and shown.report else None,
            "versions": rows[: len(listed)],
            "inspections": inspection_list([found.team_id], found)[:SHOWN_INSPECTIONS],
            **tasks_context(request, version, shown.pk if shown is not None else None),
        }
    return render(request, "dashboard/environment.html", context)


def tasks_context(
    request: HttpRequest, version: EnvironmentVersion, inspection: int | None
) -> dict[str, Any]:
    """Return the table of tasks that the query asks for, with counts by verdict."""
    rows = Task.objects.filter(version=version).order_by("position")
    judged = dict(rows.order_by().values_list("admitted").annotate(count=Count("pk")))
    counts = {name: judged.get(value, 0) for name, value in ADMITTED.items()}
    wanted = chosen(request, {"task_verdict": tuple(ADMITTED)})
    total: int | None = version.task_count
    if "task_verdict" in wanted:
        verdict = wanted["task_verdict"]
        rows, total = rows.filter(admitted=ADMITTED[verdict]), counts[verdict]
    text = request.GET.get("task", "").replace("\0", "")[:200]
    if text:
        rows, total = rows.filter(task_id__icontains=text), None
    page = page_of(request, rows, TASKS_PER_PAGE, key="tasks", total=total)
    found = Finding.objects.filter(
        inspection=inspection, task__in=[task.task_id for task in page.rows]
    )
    by_task: dict[str, list[str]] = {}
    for task, code in found.values_list("task", "code").order_by("code").distinct():
        by_task.setdefault(task, []).append(code)
    return {
        "tasks": page,
        "task_rows": [
            (task, WORDS[task.admitted], by_task.get(task.task_id, ())) for task in page.rows
        ],
        "task_counts": counts,
        "task_verdict": wanted.get("task_verdict", ""),
        "task_text": text,
    }


@require_POST
@member_page
def inspect_again(request: HttpRequest, actor: Actor, env_id: str) -> HttpResponse:
    """Start an inspection of the newest version, or of the one that the form names."""
    found = access_environment(actor, env_id, Role.CONTRIBUTOR)
    ref = request.POST.get("version", "")
    version = access_version(actor, ref, Role.CONTRIBUTOR) if ref else version_latest(found)
    if version is None or version.environment_id != found.pk:
        messages.error(request, "There is no version to inspect yet.", extra_tags="bad")
        return redirect("dashboard:environment", found.public_id)
    inspection = inspection_start(version=version, actor=str(actor))
    return redirect("dashboard:inspection", inspection.public_id)


def _asked(environment: Environment, ref: str) -> EnvironmentVersion | None:
    if not is_public_id(ref, "ver"):
        return None
    return EnvironmentVersion.objects.filter(environment=environment, public_id=ref).first()
