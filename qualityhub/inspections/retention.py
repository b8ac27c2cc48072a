"""Lets go of the trials behind old verdicts, and of outputs that no result names any more.

Reports and findings stay. What a finding refers to stays with it, and so does everything behind
the last inspections of a version and behind the one that decides about it. What is gone runs again
when an inspection needs it.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Exists, OuterRef, Q
from django.db.models.functions import Now

from qualityhub.engine.reports.reading import trials_of
from qualityhub.engine.sweeping import sweep
from qualityhub.inspections.choices import OPEN, InspectionStatus
from qualityhub.inspections.models import Finding, Inspection, InspectionTrial, TrialRecord
from qualityhub.inspections.results import evidence_store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.db.models import QuerySet

logger = logging.getLogger(__name__)
GRACE = timedelta(days=1)
"""Between a blob and the commit of its row lies one ticket at most, hours at the very worst."""
INSPECTIONS, RECORDS, BLOBS = 500, 100_000, 100_000
"""At most so many of each in one night; the next one goes on."""
CHUNK = 2000


def trials_let_go() -> dict[str, int]:
    """Remove what is no longer kept; returns how many of each; safe to repeat.

    Settings: ``QH_TRIALS_KEEP_DAYS`` (0: only outputs that nothing names) and
    ``QH_TRIALS_KEEP_INSPECTIONS``.
    """
    done = {"inspections": 0, "results": 0}
    if settings.QH_TRIALS_KEEP_DAYS:
        done["inspections"] = _let_go_of_inspections()
        done["results"] = _remove_results()
    swept = sweep(evidence_store(), _named, grace_s=GRACE.total_seconds(), most=BLOBS)
    done.update(blobs=swept.removed, blob_bytes=swept.freed_bytes)
    logger.info(
        "trials_let_go", extra={"fields": {**done, "blobs_left": swept.seen - swept.removed}}
    )
    return done


def _let_go_of_inspections() -> int:
    old = list(_old_inspections().values_list("pk", flat=True)[:INSPECTIONS])
    for pk in old:
        with transaction.atomic():
            named = {
                key
                for evidence in Finding.objects.filter(inspection=pk).values_list(
                    "evidence", flat=True
                )
                for key in trials_of(evidence)
            }
            InspectionTrial.objects.filter(inspection=pk).exclude(key__in=named).delete()
            Inspection.objects.filter(pk=pk).update(trials_let_go_at=Now())
    return len(old)


def _old_inspections() -> QuerySet[Inspection]:
    """Return ended inspections that are old, not among a version's last, and decide nothing."""
    newer = Inspection.objects.filter(
        version=OuterRef("version"), status=InspectionStatus.FINISHED, pk__gt=OuterRef("pk")
    )
    keep = settings.QH_TRIALS_KEEP_INSPECTIONS
    return (
        Inspection.objects.exclude(status__in=OPEN)
        .filter(
            Exists(newer.order_by("pk")[keep - 1 : keep]) | ~Q(status=InspectionStatus.FINISHED),
            Q(decides=False)
            | ~Q(status=InspectionStatus.FINISHED)
            | Exists(newer.filter(decides=True)),
            trials_let_go_at__isnull=True,
            created_at__lt=Now() - timedelta(days=settings.QH_TRIALS_KEEP_DAYS),
        )
        .order_by("pk")
    )


def _remove_results() -> int:
    removed = 0
    unused = TrialRecord.objects.filter(
        ~Exists(InspectionTrial.objects.filter(record=OuterRef("pk"))),
        created_at__lt=Now() - timedelta(days=settings.QH_TRIALS_KEEP_DAYS),
    ).order_by("created_at")
    while removed < RECORDS:
        found = list(unused.values_list("pk", "created_at")[:CHUNK])
        if not found:
            break
        try:
            with transaction.atomic():
                # Only the keys are read: a damaged result must go like any other.
                TrialRecord.objects.filter(pk__in=[pk for pk, _ in found]).only("pk").delete()
        except IntegrityError:
            # An inspection under way took one of them meanwhile; the next night goes on.
            logger.info("trials_in_use", extra={"fields": {"results": len(found)}})
            break
        removed += len(found)
        # Older ones that are in use need not be passed again.
        unused = unused.filter(created_at__gte=found[-1][1])
    return removed


def _named(digests: Sequence[str]) -> set[str]:
    return set(TrialRecord.objects.filter(evidence__in=digests).values_list("evidence", flat=True))
