"""What a ticket does: batches one after another for some seconds."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from qualityhub.inspections.arrivals import engine_arrived
from qualityhub.inspections.claims import (
    SILENT,
    batch_claim,
    batches_hopeless,
    batches_waiting,
    leases_expire,
    needs_waiting,
)
from qualityhub.inspections.models import Batch
from qualityhub.inspections.services import inspection_error, inspection_prepare_again
from qualityhub.inspections.tickets import ticket_pass_on, tickets_poke, tickets_send
from qualityhub.inspections.workers import needs_blocked, others_live, waits_update

if TYPE_CHECKING:
    from qualityhub.inspections.bench import Bench

DRAIN_S = 5.0
MOST_HOPS = 16
"""So often a ticket is passed on by workers that cannot do what waits."""


def drain(bench: Bench, seconds: float = DRAIN_S, hops: int = 0) -> int:
    """Do batches until none waits or the time is over; returns how many.

    Where work is left, the ticket renews itself: short turns let other messages through.

    Args:
        bench: Does them.
        seconds: When to stop claiming.
        hops: How often the ticket was passed on already.
    """
    until = time.monotonic() + seconds
    done = 0
    bench.look_again()
    while not bench.stopping():
        lease = None if bench.faults.pausing else batch_claim(bench.worker, bench.fits)
        if lease is None:
            _pass_on(bench, hops)
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
        worst = Batch.objects.filter(inspection=pk).order_by("-attempts", "pk").first()
        if worst is not None:
            message = _given_up(worst.pk, worst.last_error)
            given_up += inspection_error(pk, code="inspection.given_up", message=message)
    for pk in waits_update():
        inspection_prepare_again(pk)
    engine_arrived()
    return {"expired": expired, "given_up": given_up, "tickets": tickets_poke(needs_blocked())}


def _given_up(batch: int, last_error: str) -> str:
    """Say to the team that a batch was given up; what broke names our hosts, and is for operators.

    Only what is written here may pass: any other text may hold paths, addresses or foreign output.
    """
    if last_error == SILENT:
        return f"Batch {batch} failed again and again: {SILENT}."
    return (
        f"Batch {batch} failed again and again, for a reason of ours; operators find it at that "
        "batch and in the log."
    )


def _pass_on(bench: Bench, hops: int) -> None:
    """Give a ticket to the next worker where there is work that this one cannot do.

    The broker serves who has waited longest, so that it does not come back before the others.
    """
    if hops >= MOST_HOPS:
        return
    if bench.faults.pausing:
        if batches_waiting(1) and others_live(bench.fits.offer.session):
            ticket_pass_on(hops + 1)
        return
    if not bench.fits.unfit:
        return
    if needs_waiting(bench.fits.unfit) - set(needs_blocked()):
        ticket_pass_on(hops + 1)
