"""Starts, cancels and gives up inspections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import transaction
from django.db.models import Max
from django.db.models.functions import Now

from qualityhub.engine.errors import ConflictError
from qualityhub.inspections.admission import admission_unknown
from qualityhub.inspections.audits import audit_inspection_ended
from qualityhub.inspections.choices import (
    OPEN,
    BatchKind,
    InspectionStatus,
    Priority,
    Trigger,
)
from qualityhub.inspections.claims import batches_void
from qualityhub.inspections.models import AuditRun, Batch, Inspection, InspectionTrial
from qualityhub.inspections.planning import need_key, prepare_needs
from qualityhub.inspections.policies import policy_choose, policy_table
from qualityhub.inspections.tickets import tickets_send
from qualityhub.platform.audit import audit
from qualityhub.platform.jobs import JobStatus, job_create, job_finish
from qualityhub.platform.text import storable
from qualityhub.registry.models import Domain, Environment, EnvironmentVersion

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


PREPARATIONS = 3
"""So often worlds may be lost with their workers before the inspection ends as errored."""


def inspection_start(
    *,
    version: EnvironmentVersion,
    actor: str,
    policy: Mapping[str, Any] | None = None,
    effort: str | None = None,
    trigger: Trigger = Trigger.MANUAL,
    generation: int | None = None,
    audit_run: AuditRun | None = None,
    audit_reason: str = "",
) -> Inspection:
    """Queue an inspection; a worker is called after commit.

    The same inspection that still waits is returned instead of a second one.

    Args:
        version: What is inspected.
        actor: Who asks, as text.
        policy: An ``[admission]`` table in place of the domain's; such an inspection only informs.
        effort: In place of the policy's; less effort than the domain asks for only informs.
        trigger: Why.
        generation: Asks for fresh results where it is raised; by default that of the last one.
        audit_run: The audit it belongs to.
        audit_reason: Why the audit chose it.

    Raises:
        InvalidInputError: The policy or the effort cannot be used.
    """
    environment = version.environment
    chosen, decides = policy_choose(environment.domain, policy, effort)
    with transaction.atomic():
        # Two requests at once see each other's row.
        type(version).objects.select_for_update(of=("self",)).get(pk=version.pk)
        if generation is None:
            generation = generation_of(version)
        # An upload asks for any verdict on these files; everybody else asks with the rules of now,
        # which one that has begun may not have seen.
        joined = OPEN if trigger == Trigger.UPLOAD else (InspectionStatus.QUEUED,)
        waiting = Inspection.objects.filter(
            version=version,
            status__in=joined,
            policy_version=chosen.version,
            generation=generation,
        ).select_related("job", "team", "version__environment__domain")
        found = waiting.first()
        if found is not None:
            return found
        priority = Priority.AUDIT if trigger == Trigger.AUDIT else Priority.INTERACTIVE
        needs = prepare_needs(version)
        inspection = Inspection(
            team=environment.team,
            version=version,
            domain=environment.domain,
            audit_run=audit_run,
            audit_reason=audit_reason[:200],
            policy=policy_table(chosen),
            policy_version=chosen.version,
            effort=chosen.effort,
            decides=decides,
            generation=generation,
            trigger=trigger,
            priority=priority,
            actor=actor[:300],
            engine_asked=needs.engine,
        )
        inspection.job = job_create(
            team_id=environment.team_id, kind="inspection", object_id=inspection.public_id
        )
        inspection.save()
        Batch.objects.create(
            inspection=inspection,
            domain=environment.domain,
            priority=priority,
            kind=BatchKind.PREPARE,
            round=0,
            needs=need_key(needs),
        )
        audit(
            actor=actor,
            action="inspection.started",
            team=environment.team.public_id,
            object_id=inspection.public_id,
            object_text=str(environment),
            after={"version": version.public_id, "effort": chosen.effort, "trigger": trigger},
        )
        tickets_send(1)
    return inspection


def generation_of(version: EnvironmentVersion) -> int:
    """Return the newest generation of trials that a version was inspected with."""
    newest = Inspection.objects.filter(version=version).aggregate(value=Max("generation"))
    return newest["value"] or 0


def inspection_refresh(environment: Environment, *, actor: str) -> Inspection | None:
    """Judge an environment again after its rules changed; None where nothing was judged yet.

    Trials are not repeated: what is stored suffices, unless more effort is asked for.
    """
    version = (
        EnvironmentVersion.objects.filter(environment=environment)
        .select_related("environment__domain", "environment__team")
        .order_by("-pk")
        .first()
    )
    if version is None or version.admission is None:
        return None
    return inspection_start(version=version, actor=actor)


def inspections_refresh(domain: Domain, *, actor: str) -> int:
    """Judge all environments of a domain again; returns how many inspections were queued."""
    environments = Environment.objects.filter(domain=domain).order_by("pk")
    refreshed = [inspection_refresh(environment, actor=actor) for environment in environments]
    return sum(inspection is not None for inspection in refreshed)


def inspection_cancel(inspection: Inspection, *, actor: str) -> None:
    """End an inspection without a verdict.

    Raises:
        ConflictError: It has ended already.
    """
    with transaction.atomic():
        ended = _end(inspection.pk, InspectionStatus.CANCELLED)
        if ended is None:
            raise ConflictError("inspection.ended", "The inspection has ended already.")
        job_finish(ended.job, JobStatus.CANCELLED)
        audit_inspection_ended(ended)
        audit(
            actor=actor,
            action="inspection.cancelled",
            team=ended.team.public_id,
            object_id=ended.public_id,
            object_text=str(ended.version.environment),
        )
    inspection.refresh_from_db()


def inspection_error(inspection_pk: int, *, code: str, message: str) -> bool:
    """End an inspection because our machinery gave up; False where it had ended.

    It says nothing about the version: what was admitted stays, what was never judged is an error.
    """
    with transaction.atomic():
        ended = _end(
            inspection_pk,
            InspectionStatus.ERRORED,
            error_code=code,
            error_message=storable(message)[:2000],
        )
        if ended is None:
            return False
        job_finish(ended.job, JobStatus.ERRORED, error_code=code, error_message=message[:2000])
        admission_unknown(ended)
        audit_inspection_ended(ended)
        audit(
            actor="system",
            action="inspection.errored",
            team=ended.team.public_id,
            object_id=ended.public_id,
            object_text=str(ended.version.environment),
            after={"code": code},
        )
    return True


def inspection_prepare_again(inspection_pk: int) -> bool:
    """Begin again with new worlds: no worker that lives has the old ones or can make them.

    Trials in the old worlds no longer count for this inspection. After some attempts it ends as
    our error. False where it has ended.
    """
    with transaction.atomic():
        inspection = _open(inspection_pk)
        if inspection is None:
            return False
        prepared = Batch.objects.filter(inspection=inspection, kind=BatchKind.PREPARE)
        if prepared.count() >= PREPARATIONS:
            return inspection_error(
                inspection_pk,
                code="inspection.worlds_lost",
                message="Workers that prepared its worlds were lost again and again, and no other "
                "could make the same; operators find why at the batches of "
                f"{inspection.public_id} and in the log.",
            )
        needs = prepare_needs(inspection.version)
        batches_void(inspection)
        InspectionTrial.objects.filter(inspection=inspection).delete()
        Inspection.objects.filter(pk=inspection_pk).update(
            status=InspectionStatus.PREPARING,
            worlds=None,
            refused={},
            waits_for="",
            waits_since=None,
            engine_asked=needs.engine,
            open_batches=0,
            trials_total=0,
            trials_done=0,
            trials_cached=0,
            asks_total=0,
        )
        Batch.objects.create(
            inspection=inspection,
            domain=inspection.domain,
            priority=inspection.priority,
            kind=BatchKind.PREPARE,
            round=inspection.round + 1,
            needs=need_key(needs),
        )
        tickets_send(1)
    return True


def _open(pk: int) -> Inspection | None:
    return (
        Inspection.objects.select_for_update(of=("self",))
        .select_related("job", "team", "audit_run", "version__environment__domain")
        .filter(pk=pk, status__in=OPEN)
        .first()
    )


def _end(pk: int, status: InspectionStatus, **fields: Any) -> Inspection | None:
    inspection = _open(pk)
    if inspection is None:
        return None
    batches_void(inspection)
    Inspection.objects.filter(pk=pk).update(
        status=status,
        open_batches=0,
        finished_at=Now(),
        waits_for="",
        waits_since=None,
        **fields,
    )
    inspection.status = status
    return inspection
