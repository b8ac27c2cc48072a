"""Goes on with verdicts that are pending for want of an engine, once a worker with one appears."""

from __future__ import annotations

from datetime import timedelta

from django.db.models import Exists, OuterRef
from django.db.models.functions import Now

from qualityhub.inspections.choices import BatchKind, InspectionStatus, Trigger
from qualityhub.inspections.models import Batch, Inspection, Need, Worker
from qualityhub.inspections.services import inspection_start
from qualityhub.inspections.workers import LIVE_S
from qualityhub.registry.models import EnvironmentVersion

AT_ONCE = 20


def engine_arrived() -> int:
    """Inspect again what was prepared while no worker had an engine; returns how many began.

    Only newest versions whose newest inspection ended as pending. Once is enough: the new
    inspection is prepared by a worker with an engine, whatever it comes to.
    """
    live = Worker.objects.filter(seen_at__gte=Now() - timedelta(seconds=LIVE_S))
    if not live.filter(offer__engine=True).exists():
        return 0
    with_engine = Need.objects.filter(document__engine=True).values("pk")
    prepared = Batch.objects.filter(
        inspection=OuterRef("pk"), kind=BatchKind.PREPARE, needs__in=with_engine
    )
    versions = (
        EnvironmentVersion.objects.order_by("environment_id", "-pk")
        .distinct("environment_id")
        .values("pk")
    )
    newest = (
        Inspection.objects.filter(version__in=versions, version__placement__image=True)
        .order_by("version_id", "-pk")
        .distinct("version_id")
        .values("pk")
    )
    pending = (
        Inspection.objects.filter(
            ~Exists(prepared), pk__in=newest, status=InspectionStatus.FINISHED, verdict="pending"
        )
        .select_related("version__environment__domain", "version__environment__team")
        .defer("report", "worlds", "inputs")
    )
    found = list(pending[:AT_ONCE])
    for inspection in found:
        inspection_start(
            version=inspection.version,
            actor="system",
            trigger=Trigger.AUDIT,
            audit_reason="a worker with a container engine appeared",
        )
    return len(found)
