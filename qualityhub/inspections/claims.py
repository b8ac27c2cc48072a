"""The work queue in PostgreSQL: who may do which batch, and for how long. Time is the database's.

A broker message is only a ticket to come here. A lease is a random token on the row: what a worker
stores is fenced by it, so that a worker that was thought dead and comes back stores nothing.
"""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db import connection, transaction
from django.db.models import F, Func, Value
from django.db.models.functions import Greatest, Now

from qualityhub.engine.errors import QualityHubError
from qualityhub.inspections.choices import OPEN, BatchStatus
from qualityhub.inspections.models import Batch, DomainTurn, Inspection
from qualityhub.platform.text import storable

if TYPE_CHECKING:
    from collections.abc import Iterator

ATTEMPTS = 5
"""So often a batch may be lost by its workers before the inspection ends as errored."""

# Priority class first; within it the domain with the least work in hand, then the one that waited
# longest. The inner probe is one index look-up per domain, however long a backlog is.
TURNS = """
SELECT d.id, p.priority
FROM registry_domain d
CROSS JOIN (VALUES (0), (10), (20)) AS p (priority)
LEFT JOIN (
    SELECT domain_id, count(*) AS running FROM inspections_batch
    WHERE status = 'leased' GROUP BY domain_id
) r ON r.domain_id = d.id
LEFT JOIN inspections_domainturn t ON t.domain_id = d.id
WHERE EXISTS (
    SELECT 1 FROM inspections_batch b
    WHERE b.domain_id = d.id AND b.priority = p.priority AND b.status = 'queued'
        AND b.attempts < 5 AND b.ready_at <= clock_timestamp()
)
ORDER BY p.priority, coalesce(r.running, 0), t.served_at NULLS FIRST, d.id
LIMIT 32
"""


class LeaseLostError(QualityHubError):
    """Somebody else holds the batch now, or nobody needs it any more."""

    def __init__(self) -> None:
        super().__init__("lease.lost", "The lease on this batch is gone; nothing is stored.")


@dataclass(frozen=True, slots=True)
class Lease:
    """A batch in one worker's hands.

    Attributes:
        batch: The row as it was claimed, with its inspection, version and environment.
        token: Proves the claim.
    """

    batch: Batch
    token: uuid.UUID


def batch_claim(worker: str) -> Lease | None:
    """Take the next batch that waits, or None where there is none.

    Args:
        worker: Who takes it, for people.
    """
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(TURNS)
            turns = cursor.fetchall()
        for domain_id, priority in turns:
            found = (
                Batch.objects.select_for_update(skip_locked=True)
                .filter(domain_id=domain_id, priority=priority, status=BatchStatus.QUEUED)
                .filter(attempts__lt=ATTEMPTS, ready_at__lte=_clock())
                .order_by("id")
                .values_list("pk", flat=True)
                .first()
            )
            if found is not None:
                return _lease(found, domain_id, worker)
    return None


def _lease(pk: int, domain_id: int, worker: str) -> Lease:
    token = uuid.uuid4()
    Batch.objects.filter(pk=pk).update(
        status=BatchStatus.LEASED,
        lease_token=token,
        lease_until=_lease_end(),
        leased_at=Now(),
        worker=worker[:200],
        attempts=F("attempts") + 1,
    )
    DomainTurn.objects.bulk_create(
        [DomainTurn(domain_id=domain_id, served_at=_clock())],
        update_conflicts=True,
        unique_fields=["domain"],
        update_fields=["served_at"],
    )
    # Worlds and inputs of a large inspection have megabytes; who needs them reads them then.
    batch = (
        Batch.objects.select_related(
            "inspection__version__environment__domain",
            "inspection__version__environment__team",
            "inspection__job",
        )
        .defer("inspection__worlds", "inspection__inputs", "inspection__report")
        .get(pk=pk)
    )
    return Lease(batch, token)


def lease_extend(lease: Lease) -> bool:
    """Say that the worker still lives; False where it holds nothing any more."""
    return bool(_held(lease).update(lease_until=Greatest("lease_until", _lease_end())))


@contextmanager
def fenced(lease: Lease) -> Iterator[tuple[Inspection, Batch]]:
    """Open the one transaction that stores what a batch did; both rows stay locked until its end.

    The inspection is locked first, as whoever ends it does: two orders would deadlock.

    Raises:
        LeaseLostError: The claim is gone; nothing may be stored.
    """
    with transaction.atomic():
        inspection = (
            Inspection.objects.select_for_update(of=("self",))
            .select_related("job", "team", "audit_run", "version__environment__domain")
            .defer("report", "worlds", "inputs")
            .filter(pk=lease.batch.inspection_id, status__in=OPEN)
            .first()
        )
        batch = _held(lease).select_for_update().first()
        if inspection is None or batch is None:
            raise LeaseLostError
        yield inspection, batch


def batch_done(batch: Batch) -> None:
    """End a batch, within :func:`fenced`."""
    Batch.objects.filter(pk=batch.pk).update(
        status=BatchStatus.DONE,
        lease_token=None,
        lease_until=None,
        trials=None,
        done_at=Now(),
    )


def lease_give_back(lease: Lease, *, reason: str = "", counts: bool = False) -> bool:
    """Let another worker take the batch; False where the claim was gone already.

    Args:
        lease: The claim.
        reason: Why it could not be done, for the log and the attempts' end.
        counts: Whether this was a failed attempt; an orderly shutdown is none.
    """
    changes: dict[str, Any] = {
        "status": BatchStatus.QUEUED,
        "lease_token": None,
        "lease_until": None,
    }
    if reason:
        changes["last_error"] = storable(reason)[:2000]
    if counts:
        changes["ready_at"] = _clock() + Value(timedelta(seconds=2**lease.batch.attempts))
    else:
        changes["attempts"] = F("attempts") - 1
    return bool(_held(lease).update(**changes))


def leases_expire() -> int:
    """Put batches of silent workers back; returns how many."""
    with transaction.atomic():
        lost = list(
            Batch.objects.select_for_update(skip_locked=True)
            .filter(status=BatchStatus.LEASED, lease_until__lt=_clock())
            .values_list("pk", flat=True)
        )
        return Batch.objects.filter(pk__in=lost).update(
            status=BatchStatus.QUEUED,
            lease_token=None,
            lease_until=None,
            last_error="its worker fell silent",
        )


def batches_waiting(limit: int = 64) -> int:
    """Return how many batches could be claimed now, counting no further than ``limit``."""
    waiting = Batch.objects.filter(
        status=BatchStatus.QUEUED, attempts__lt=ATTEMPTS, ready_at__lte=_clock()
    )
    return len(waiting.values_list("pk")[:limit])


def batches_hopeless() -> list[int]:
    """Return inspections, by primary key, with a batch that was lost too often."""
    return list(
        Batch.objects.filter(
            status=BatchStatus.QUEUED, attempts__gte=ATTEMPTS, inspection__status__in=OPEN
        )
        .values_list("inspection_id", flat=True)
        .distinct()
    )


def batches_void(inspection: Inspection) -> int:
    """Take back every batch of an inspection that nobody has ended yet."""
    return Batch.objects.filter(
        inspection=inspection, status__in=(BatchStatus.QUEUED, BatchStatus.LEASED)
    ).update(
        status=BatchStatus.VOID, lease_token=None, lease_until=None, trials=None, done_at=Now()
    )


def _held(lease: Lease) -> Any:
    return Batch.objects.filter(
        pk=lease.batch.pk, status=BatchStatus.LEASED, lease_token=lease.token
    )


def _clock() -> Func:
    # Not now(), which stands still within a transaction.
    return Func(function="clock_timestamp", output_field=Batch._meta.get_field("lease_until"))  # noqa: SLF001


def _lease_end() -> Any:
    return _clock() + Value(timedelta(seconds=settings.QH_LEASE_SECONDS))
