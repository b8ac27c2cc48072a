"""What a ticket does: batches one after another for some seconds."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from qualityhub.inspections.claims import (
    batch_claim,
    batches_hopeless,
    batches_waiting,
    leases_expire,
)
from qualityhub.inspections.models import Batch
from qualityhub.inspections.services import inspection_error
from qualityhub.inspections.tickets import tickets_poke, tickets_send

if TYPE_CHECKING:
    from qualityhub.inspections.bench import Bench

DRAIN_S = 5.0


def drain(bench: Bench, seconds: float = DRAIN_S) -> int:
    """Do batches until none waits or the time is over; returns how many.

    Where work is left, the ticket renews itself: short turns let other messages through.
    """
    until = time.monotonic() + seconds
    done = 0
    while not bench.stopping():
        lease = batch_claim(bench.worker)
        if lease is None:
            return done
        bench.work(lease)
        done += 1
        if time.monotonic() >= until:
            break
    if batches_waiting(1):
        tickets_send(1)
    return done


def reap() -> dict[str, int]:
    """Bring back what silent workers held, give up the hopeless, make up for lost tickets."""
    expired = leases_expire()
    given_up = 0
    for pk in batches_hopeless():
        worst = (
            Batch.objects.filter(inspection=pk).order_by("-attempts").values_list("last_error")
        ).first()
        reason = (worst[0] if worst else "") or "its workers were lost"
        given_up += inspection_error(
            pk,
            code="inspection.given_up",
            message=f"A batch failed again and again: {reason}",
        )
    return {"expired": expired, "given_up": given_up, "tickets": tickets_poke()}
