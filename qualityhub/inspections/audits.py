"""Audits: inspect again what is admitted and stale, or was judged by rules or hosts of the past."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db import connection, transaction
from django.db.models import F, OuterRef, QuerySet, Subquery
from django.db.models.functions import Now

from qualityhub.accounts.models import Team
from qualityhub.inspections.choices import (
    OPEN,
    AuditStatus,
    AuditTrigger,
    InspectionStatus,
    Trigger,
)
from qualityhub.inspections.models import AuditRun, Inspection
from qualityhub.platform.audit import audit
from qualityhub.registry.choices import Admission
from qualityhub.registry.models import EnvironmentVersion

if TYPE_CHECKING:
    from collections.abc import Iterable

AUDITED = (Admission.ADMITTED, Admission.PARTIAL)
LOCK = 0x7148_4155
"""Advisory lock: two schedulers start one audit."""


def audit_run(
    *,
    team: Team,
    actor: str,
    trigger: AuditTrigger = AuditTrigger.MANUAL,
    stale_after: timedelta | None = None,
    facts: str = "",
) -> AuditRun:
    """Start fresh inspections of a team's admitted versions that need one.

    Args:
        team: Whose.
        actor: Who asks, as text.
        trigger: Who that is.
        stale_after: Age of the last inspection from which a version is stale; by default
            ``QH_AUDIT_STALE_DAYS``.
        facts: Digest of today's rules, programs and class of host; verdicts made from another are
            inspected again whatever their age. Empty where the caller cannot know.
    """
    from qualityhub.inspections.planning import need_keys, prepare_needs  # noqa: PLC0415 - as below.
    from qualityhub.inspections.services import generation_of, inspection_start  # noqa: PLC0415 - services end audits.

    if stale_after is None:
        stale_after = timedelta(days=settings.QH_AUDIT_STALE_DAYS)
    with transaction.atomic():
        # One audit of a team at a time: a second one sees the first one's open inspections.
        # Weaker than FOR UPDATE: rows that name the team can be written meanwhile.
        Team.objects.select_for_update(no_key=True).get(pk=team.pk)
        considered = _considered(team)
        run = AuditRun.objects.create(
            team=team, trigger=trigger, actor=actor[:300], considered=considered.count()
        )
        started = 0
        due = list(_due(considered, stale_after, facts))
        need_keys(prepare_needs(version) for version, _ in due)  # All at once, in their order.
        for version, reason in due:
            inspection = inspection_start(
                version=version,
                actor=actor,
                trigger=Trigger.AUDIT,
                generation=generation_of(version) + 1,
                audit_run=run,
                audit_reason=reason,
            )
            # Somebody may have asked for the same a moment ago; that one is not the audit's.
            started += inspection.audit_run_id == run.pk
        AuditRun.objects.filter(pk=run.pk).update(started=started, remaining=started)
        if not started:
            _finish(run)
        audit(
            actor=actor,
            action="audit.started",
            team=team.public_id,
            object_id=run.public_id,
            object_text=f"{started} of {run.considered}",
        )
    run.refresh_from_db()
    return run


def audit_nightly(facts: str) -> list[AuditRun]:
    """Start the night's audit of every team that has something admitted."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [LOCK])
            (free,) = cursor.fetchone()
        if not free:
            return []
        teams = Team.objects.filter(
            pk__in=EnvironmentVersion.objects.filter(admission__in=AUDITED).values(
                "environment__team"
            )
        ).order_by("pk")
        return [
            audit_run(team=team, actor="system", trigger=AuditTrigger.NIGHTLY, facts=facts)
            for team in teams
        ]


def audit_inspection_ended(inspection: Inspection) -> None:
    """Count an audit's inspection as done, and note what it changed; in its own transaction."""
    if inspection.audit_run_id is None:
        return
    run = AuditRun.objects.select_for_update().get(pk=inspection.audit_run_id)
    change = _change(inspection)
    run.changes = [*run.changes, change] if change else run.changes
    run.remaining = max(0, run.remaining - 1)
    run.save(update_fields=["changes", "remaining"])
    if not run.remaining:
        _finish(run)


def audit_list(team_ids: Iterable[int]) -> QuerySet[AuditRun]:
    """Return the audits of teams."""
    return AuditRun.objects.filter(team__in=list(team_ids)).select_related("team")


def _considered(team: Team) -> QuerySet[EnvironmentVersion]:
    last = Inspection.objects.filter(
        version=OuterRef("pk"), status=InspectionStatus.FINISHED, decides=True
    ).order_by("-pk")
    return (
        EnvironmentVersion.objects.filter(environment__team=team, admission__in=AUDITED)
        .exclude(pk__in=Inspection.objects.filter(status__in=OPEN).values("version"))
        .annotate(
            last_finished=Subquery(last.values("finished_at")[:1]),
            last_facts=Subquery(last.values("facts")[:1]),
            clock=Now(),
        )
        .select_related("environment__domain", "environment__team")
        .order_by(F("last_finished").asc(nulls_first=True), "pk")
    )


def _due(
    versions: QuerySet[EnvironmentVersion], stale_after: timedelta, facts: str
) -> Iterable[tuple[EnvironmentVersion, str]]:
    for version in versions:
        row: Any = version
        if row.last_finished is None:
            yield version, "never inspected to the end"
        elif facts and row.last_facts != facts:
            yield version, "rules, programs or class of host changed"
        elif row.clock - row.last_finished >= stale_after:
            hours = (row.clock - row.last_finished).total_seconds() / 3600
            yield version, f"last inspected {hours:.0f} h ago"


def _change(inspection: Inspection) -> dict[str, Any] | None:
    """Return how an inspection differs from the one before it, or None where it does not."""
    before = (
        Inspection.objects.filter(
            version=inspection.version_id,
            status=InspectionStatus.FINISHED,
            decides=True,
            pk__lt=inspection.pk,
        )
        .order_by("-pk")
        .first()
    )
    was = before.verdict if before else ""
    now = inspection.verdict or inspection.status
    appeared, gone = _difference(before, inspection)
    if was == now and not appeared and not gone:
        return None
    return {
        "version": inspection.version.public_id,
        "environment": inspection.version.environment.public_id,
        "name": str(inspection.version.environment),
        "inspection": inspection.public_id,
        "before": was or None,
        "after": now,
        "appeared": appeared,
        "gone": gone,
    }


def _difference(before: Inspection | None, after: Inspection) -> tuple[list[str], list[str]]:
    if before is None or after.status != InspectionStatus.FINISHED:
        return [], []
    old = dict(before.findings.values_list("fingerprint", "code"))
    new = dict(after.findings.values_list("fingerprint", "code"))
    appeared = sorted({code for mark, code in new.items() if mark not in old})
    gone = sorted({code for mark, code in old.items() if mark not in new})
    return appeared, gone


def _finish(run: AuditRun) -> None:
    AuditRun.objects.filter(pk=run.pk).update(status=AuditStatus.FINISHED, finished_at=Now())
