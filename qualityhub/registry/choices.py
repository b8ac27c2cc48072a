"""States and roles of environments."""

from __future__ import annotations

from django.db import models


class TaskRole(models.TextChoices):
    """What a task may be used for; training and measuring are kept apart."""

    TRAIN = "train"
    GATE = "gate"
    BOTH = "both"


class Admission(models.TextChoices):
    """What the inspections say about a version; written by them alone."""

    ADMITTED = "admitted"
    PARTIAL = "partial"
    PENDING = "pending"
    QUARANTINED = "quarantined"
    REJECTED = "rejected"
    ERROR = "error"


class SourceKind(models.TextChoices):
    """Where a version came from."""

    ARCHIVE = "archive"
    REFERENCE = "reference"
