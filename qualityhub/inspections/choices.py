"""States of inspections, batches, findings and audits."""

from __future__ import annotations

from django.db import models


class InspectionStatus(models.TextChoices):
    """Where an inspection is. Errored: our machinery gave up; it says nothing about the version."""

    QUEUED = "queued"
    PREPARING = "preparing"
    RUNNING = "running"
    FINISHED = "finished"
    ERRORED = "errored"
    CANCELLED = "cancelled"


OPEN = (InspectionStatus.QUEUED, InspectionStatus.PREPARING, InspectionStatus.RUNNING)


class Trigger(models.TextChoices):
    """Why an inspection was started."""

    UPLOAD = "upload"
    MANUAL = "manual"
    AUDIT = "audit"
    CI = "ci"


class Priority(models.IntegerChoices):
    """Classes of work; a smaller number is served first."""

    GATE = 0
    INTERACTIVE = 10
    AUDIT = 20


class BatchKind(models.TextChoices):
    """What a unit of work does: build worlds, run trials, or decide what comes next."""

    PREPARE = "prepare"
    TRIALS = "trials"
    ADVANCE = "advance"


class BatchStatus(models.TextChoices):
    """Where a unit of work is. Void: nobody needs it any more."""

    QUEUED = "queued"
    LEASED = "leased"
    DONE = "done"
    VOID = "void"


class AuditTrigger(models.TextChoices):
    """Who asked for an audit."""

    NIGHTLY = "nightly"
    MANUAL = "manual"


class AuditStatus(models.TextChoices):
    """Where an audit is."""

    RUNNING = "running"
    FINISHED = "finished"
