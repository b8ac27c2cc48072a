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
from django.db import transaction
from django.db.models import F, Func, Value
from django.db.models.functions import Greatest, Now

from qualityhub.engine.errors import QualityHubError
from qualityhub.inspections.choices import OPEN, BatchStatus
from qualityhub.inspections.models import Batch, Inspection, Need
from qualityhub.inspections.needs import Offer
from qualityhub.inspections.planning import need_keys, without
from qualityhub.inspections.turns import Fits, take, turns, within_quota
from qualityhub.platform.text import storable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SILENT = "its worker fell silent"
ATTEMPTS = 5
"""So often a batch may be lost by its workers before the inspection ends as errored."""


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


def batch_claim(worker: str, fits: Fits | None = None) -> Lease | None:
    """Take the next batch that waits and that the worker can do, or None where there is none.

    Args:
        worker: Who takes it, for people.
        fits: What it can do; a worker that does not say takes anything.
    """
    token = uuid.uuid4()
    for turn in turns(fits or Fits(Offer(worker, anything=True)), ATTEMPTS):
        if not turn.limited:
            found = take(turn, token=token, worker=worker, attempts=ATTEMPTS)
        else:
            with transaction.atomic():
                found = (
                    take(turn, token=token, worker=worker, attempts=ATTEMPTS)
                    if within_quota(turn)
                    else None
                )
        if found is not None:
            return Lease(_claimed(found), token)
    return None


def _claimed(pk: int) -> Batch:
    # Worlds and inputs of a large inspection have megabytes; who needs them, or the version, reads
    # them then: batches of trials find theirs staged.
    return (
        Batch.objects.select_related("inspection")
        .defer("inspection__worlds", "inspection__inputs", "inspection__report")
        .get(pk=pk)
    )


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


def lease_refuse(lease: Lease, session: str, reason: str) -> None:
    """Give a batch back because this worker cannot do it; it gets none of its inspection again.

    Raises:
        LeaseLostError: The claim was gone already.
    """
    reason = storable(reason)[:500]
    with fenced(lease) as (inspection, batch):
        Inspection.objects.filter(pk=inspection.pk).update(
            refused={**inspection.refused, session: reason}
        )
        Batch.objects.filter(pk=batch.pk).update(
            status=BatchStatus.QUEUED,
            lease_token=None,
            lease_until=None,
            last_error=reason,
            attempts=F("attempts") - 1,
        )
        queued = Batch.objects.filter(inspection=inspection, status=BatchStatus.QUEUED)
        keys = set(queued.values_list("needs", flat=True))
        documents = dict(Need.objects.filter(pk__in=keys).values_list("pk", "document"))
        narrowed = {key: without(documents.get(key, {}), session) for key in keys}
        rows = need_keys(narrowed.values())
        for key, needs in narrowed.items():
            queued.filter(needs=key).update(needs=rows[needs])


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
            last_error=SILENT,
        )


def batches_waiting(limit: int = 64, *, but: Iterable[int] = ()) -> int:
    """Return how many batches could be claimed now, counting no further than ``limit``.

    Args:
        limit: Where the count ends.
        but: Batches with these needs are left out.
    """
    waiting = Batch.objects.filter(
        status=BatchStatus.QUEUED, attempts__lt=ATTEMPTS, ready_at__lte=_clock()
    ).exclude(needs__in=list(but))
    return len(waiting.values_list("pk")[:limit])


def needs_waiting(among: Iterable[int]) -> set[int]:
    """Return those of the needs that a batch has which could be claimed now."""
    waiting = Batch.objects.filter(
        status=BatchStatus.QUEUED,
        attempts__lt=ATTEMPTS,
        ready_at__lte=_clock(),
        needs__in=list(among),
    )
    return set(waiting.values_list("needs", flat=True).distinct())


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
