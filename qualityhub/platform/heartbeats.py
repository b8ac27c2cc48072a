"""Heartbeats of processes that no request reaches: workers and the scheduler."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.models import DurationField, ExpressionWrapper, F
from django.db.models.functions import Now

if TYPE_CHECKING:
    from collections.abc import Mapping


class HeartbeatKind(models.TextChoices):
    """What kind of process beats."""

    WORKER = "worker"
    BEAT = "beat"


class Heartbeat(models.Model):
    """The last sign of life of one process."""

    name = models.CharField(max_length=200, unique=True)
    kind = models.CharField(max_length=10, choices=HeartbeatKind.choices)
    labels = models.JSONField(default=dict, blank=True)
    seen_at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return self.name


def heartbeat(name: str, kind: HeartbeatKind, labels: Mapping[str, Any] | None = None) -> None:
    """Note a sign of life, by the database's clock."""
    Heartbeat.objects.bulk_create(
        [Heartbeat(name=name, kind=kind, labels=dict(labels or {}), seen_at=Now())],
        update_conflicts=True,
        unique_fields=["name"],
        update_fields=["kind", "labels", "seen_at"],
    )


def heartbeat_age(kind: HeartbeatKind) -> timedelta | None:
    """Return how long ago the liveliest process of a kind was seen, or None for never."""
    age = ExpressionWrapper(Now() - F("seen_at"), output_field=DurationField())
    found: timedelta | None = (
        Heartbeat.objects.filter(kind=kind)
        .annotate(age=age)
        .order_by("age")
        .values_list("age", flat=True)
        .first()
    )
    return found


def heartbeats_alive(kind: HeartbeatKind, silent_s: float) -> int:
    """Return how many processes of a kind were seen within so many seconds."""
    since = Now() - timedelta(seconds=silent_s)
    return Heartbeat.objects.filter(kind=kind, seen_at__gte=since).count()


def heartbeat_forget(name: str) -> None:
    """Forget a process that ended in good order."""
    Heartbeat.objects.filter(name=name).delete()


def heartbeats_purge(silent_for: timedelta) -> int:
    """Forget processes silent for so long; returns how many."""
    return Heartbeat.objects.filter(seen_at__lt=Now() - silent_for).delete()[0]
