"""Reads of this app. Lists leave the heavy columns out; overviews have a constant query count."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from django.db.models import Count, Max, QuerySet

from qualityhub.inspections.choices import OPEN, InspectionStatus
from qualityhub.inspections.models import Finding, Inspection
from qualityhub.registry.models import Domain, EnvironmentVersion

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from qualityhub.accounts.models import Team
    from qualityhub.registry.models import Environment

HEAVY = ("report", "worlds", "inputs")
SEVERITIES = ("error", "warning", "info")


def inspection_list(
    teams: Team | Iterable[int], environment: Environment | None = None
) -> QuerySet[Inspection]:
    """Return inspections with version, environment, domain and job, newest first; one query.

    Args:
        teams: A team, or primary keys of teams.
        environment: Only of this one.
    """
    rows = Inspection.objects.filter(team__in=_ids(teams))
    if environment is not None:
        rows = rows.filter(version__environment=environment)
    return _joined(rows).order_by("-id")


def inspection_get(teams: Team | Iterable[int], public_id: str) -> Inspection | None:
    """Return an inspection with version, environment, domain and job, or None; one query.

    ``report`` holds the whole JSON document and is read by a second query when it is looked at.
    """
    rows = Inspection.objects.filter(team__in=_ids(teams), public_id=public_id)
    return _joined(rows).first()


def inspection_latest(version: EnvironmentVersion) -> Inspection | None:
    """Return the newest inspection of a version, ended or not; one query."""
    return _joined(Inspection.objects.filter(version=version)).order_by("-id").first()


def findings_for(inspection: Inspection) -> QuerySet[Finding]:
    """Return an inspection's findings in the report's order; one query."""
    return Finding.objects.filter(inspection=inspection).order_by("position")


def finding_list(teams: Team | Iterable[int]) -> QuerySet[Finding]:
    """Return the findings of the newest finished inspection of every version, one query.

    Those of earlier inspections are history and are read through their inspection.
    """
    newest = (
        Inspection.objects.filter(team__in=_ids(teams), status=InspectionStatus.FINISHED)
        .order_by("version_id", "-pk")
        .distinct("version_id")
        .values("pk")
    )
    return (
        Finding.objects.filter(inspection__in=newest)
        .select_related("inspection__version__environment__domain")
        .defer(*(f"inspection__{name}" for name in HEAVY))
    )


@dataclass(slots=True)
class DomainOverview:
    """One domain at a glance; tasks and findings are those of each environment's newest version.

    Attributes:
        domain: The row.
        environments: How many.
        versions: Versions by admission; ``not_judged`` for those without.
        tasks: Tasks by verdict: ``admitted``, ``quarantined``, ``pending``, ``error``.
        findings: Findings by severity, and ``waived``.
        last_inspected_at: End of the newest inspection.
        running: Inspections under way.
    """

    domain: Domain
    environments: int = 0
    versions: Counter[str] = field(default_factory=Counter)
    tasks: Counter[str] = field(default_factory=Counter)
    findings: Counter[str] = field(default_factory=Counter)
    last_inspected_at: datetime | None = None
    running: int = 0


def domain_overview(teams: Team | Iterable[int]) -> list[DomainOverview]:
    """Return every domain at a glance, by slug; five queries, however many domains there are."""
    ids = _ids(teams)
    domains = Domain.objects.filter(team__in=ids).select_related("team")
    found = {
        domain.pk: DomainOverview(domain, environments=domain.environment_count)
        for domain in domains.annotate(environment_count=Count("environments")).order_by("slug")
    }
    states = (
        EnvironmentVersion.objects.filter(environment__team__in=ids)
        .values("environment__domain", "admission")
        .annotate(count=Count("pk"))
    )
    for state_row in states:
        state = state_row["admission"] or "not_judged"
        found[state_row["environment__domain"]].versions[state] += state_row["count"]
    ended = (
        Inspection.objects.filter(team__in=ids)
        .values("domain", "status")
        .annotate(count=Count("pk"), last=Max("finished_at"))
    )
    for row in ended:
        overview = found[row["domain"]]
        if row["status"] in OPEN:
            overview.running += row["count"]
        if row["status"] == InspectionStatus.FINISHED:
            overview.last_inspected_at = row["last"]
    newest = _newest_versions(ids)
    judged = _deciding(pk for pk, *_ in newest)
    for pk, domain_id, tasks in newest:
        overview = found[domain_id]
        if pk in judged:
            task_counts, finding_counts = judged[pk]
            overview.tasks.update(task_counts)
            overview.findings.update(finding_counts)
        else:
            overview.tasks["pending"] += tasks
    return list(found.values())


@dataclass(frozen=True, slots=True)
class VersionState:
    """One version in its environment's history.

    Attributes:
        version: The row.
        inspection: The inspection that decided about it, or the newest one where none did.
        inspections: How many there were.
    """

    version: EnvironmentVersion
    inspection: Inspection | None
    inspections: int


def version_history(environment: Environment) -> list[VersionState]:
    """Return an environment's versions with their verdicts, newest first; two queries."""
    versions = (
        EnvironmentVersion.objects.filter(environment=environment)
        .annotate(inspection_count=Count("inspections"))
        .select_related("environment__domain")
        .order_by("-id")
    )
    of_version: dict[int, list[Inspection]] = defaultdict(list)
    rows = Inspection.objects.filter(version__environment=environment)
    for inspection in _joined(rows).order_by("-id"):
        of_version[inspection.version_id].append(inspection)
    return [
        VersionState(version, _decisive(of_version[version.pk]), version.inspection_count)
        for version in versions
    ]


def _decisive(newest_first: list[Inspection]) -> Inspection | None:
    decided = [
        inspection
        for inspection in newest_first
        if inspection.decides and inspection.status == InspectionStatus.FINISHED
    ]
    return next(iter([*decided, *newest_first]), None)


def _newest_versions(team_ids: list[Any]) -> list[tuple[int, int, int]]:
    return list(
        EnvironmentVersion.objects.filter(environment__team__in=team_ids)
        .order_by("environment_id", "-pk")
        .distinct("environment_id")
        .values_list("pk", "environment__domain_id", "task_count")
    )


def _deciding(versions: Iterable[int]) -> dict[int, tuple[dict[str, int], dict[str, int]]]:
    rows = (
        Inspection.objects.filter(
            version__in=list(versions), status=InspectionStatus.FINISHED, decides=True
        )
        .order_by("version_id", "-pk")
        .distinct("version_id")
        .values_list("version_id", "task_counts", "finding_counts")
    )
    return {version: (tasks, findings) for version, tasks, findings in rows}


def _joined(rows: QuerySet[Inspection]) -> QuerySet[Inspection]:
    return rows.select_related(
        "team", "version__environment__domain", "version__environment__team", "job", "audit_run"
    ).defer(*HEAVY)


def _ids(teams: Team | Iterable[int]) -> list[Any]:
    pk = getattr(teams, "pk", None)
    return [pk] if pk is not None else list(teams)  # type: ignore[arg-type]
