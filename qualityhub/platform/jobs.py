"""Jobs: rows that say how far long work is. The broker only carries their ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from django.db import models
from django.db.models import F
from django.db.models.functions import Coalesce, Now

from qualityhub.engine.errors import ConflictError
from qualityhub.platform.ids import PublicIdModel

if TYPE_CHECKING:
    from collections.abc import Mapping


class JobStatus(models.TextChoices):
    """Where a job is. Failed: the work said no. Errored: our machinery broke."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    ERRORED = "errored"
    CANCELLED = "cancelled"


ACTIVE = (JobStatus.QUEUED, JobStatus.RUNNING)
TERMINAL = (JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.ERRORED, JobStatus.CANCELLED)


class Job(PublicIdModel):
    """One piece of work that outlives its request."""

    PREFIX: ClassVar[str] = "job"

    team = models.ForeignKey("accounts.Team", models.CASCADE, related_name="jobs")
    kind = models.CharField(max_length=60)
    status = models.CharField(
        max_length=12, choices=JobStatus.choices, default=JobStatus.QUEUED.value
    )
    object_id = models.CharField(max_length=100, blank=True, help_text="Public id of its subject.")
    progress_done = models.PositiveIntegerField(default=0)
    progress_total = models.PositiveIntegerField(default=0)
    progress_message = models.CharField(max_length=300, blank=True)
    result = models.JSONField(null=True, blank=True)
    error_code = models.CharField(max_length=100, blank=True)
    error_message = models.TextField(blank=True)
    attempt = models.PositiveIntegerField(default=0)
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        """Lists by team, and the work that is still open."""

        indexes = (
            models.Index(fields=["team", "-id"], name="job_team"),
            models.Index(
                fields=["kind", "id"],
                name="job_active",
                condition=models.Q(status__in=["queued", "running"]),
            ),
        )
        constraints = (
            models.CheckConstraint(
                condition=models.Q(status__in=["queued", "running"])
                ^ models.Q(finished_at__isnull=False),
                name="job_finished_when_terminal",
            ),
        )


def job_create(*, team_id: int, kind: str, object_id: str = "", total: int = 0) -> Job:
    """Create a queued job in the caller's transaction."""
    return Job.objects.create(team_id=team_id, kind=kind, object_id=object_id, progress_total=total)


def job_start(job: Job) -> bool:
    """Mark an attempt as begun; False where the job has ended meanwhile (cancelled, say)."""
    return bool(
        Job.objects.filter(pk=job.pk, status__in=ACTIVE).update(
            status=JobStatus.RUNNING,
            started_at=Coalesce("started_at", Now()),
            attempt=F("attempt") + 1,
        )
    )


def job_progress(job: Job, *, done: int, total: int | None = None, message: str = "") -> bool:
    """Note how far the job is; False where it has ended, and the worker should stop."""
    fields: dict[str, Any] = {"progress_done": done, "progress_message": message[:300]}
    if total is not None:
        fields["progress_total"] = total
    return bool(Job.objects.filter(pk=job.pk, status__in=ACTIVE).update(**fields))


def job_finish(
    job: Job,
    status: JobStatus,
    *,
    result: Mapping[str, Any] | None = None,
    error_code: str = "",
    error_message: str = "",
) -> bool:
    """End a job once; False where it had ended already.

    Raises:
        ConflictError: The status is none that ends a job.
    """
    if status not in TERMINAL:
        raise ConflictError("job.not_terminal", f"{status} does not end a job.")
    return bool(
        Job.objects.filter(pk=job.pk, status__in=ACTIVE).update(
            status=status,
            result=dict(result) if result is not None else None,
            error_code=error_code,
            error_message=error_message.replace("\0", "\N{REPLACEMENT CHARACTER}"),
            finished_at=Now(),
        )
    )


def job_document(job: Job) -> dict[str, Any]:
    """Return the job as the API shows it."""
    return {
        "id": job.public_id,
        "kind": job.kind,
        "status": job.status,
        "object": job.object_id or None,
        "progress": {
            "done": job.progress_done,
            "total": job.progress_total,
            "message": job.progress_message,
        },
        "result": job.result,
        "error": {"code": job.error_code, "message": job.error_message} if job.error_code else None,
        "attempt": job.attempt,
        "created_at": job.created_at,
        "started_at": job.started_at,
        "finished_at": job.finished_at,
        "url": f"/api/v1/jobs/{job.public_id}",
    }
