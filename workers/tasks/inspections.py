"""Tickets that drain the queue in PostgreSQL, and the sweep that brings back what was lost."""

from __future__ import annotations

import os
import platform
from typing import Any

from celery import shared_task
from celery.signals import worker_process_shutdown

from qualityhub.inspections.bench import Bench
from qualityhub.inspections.draining import drain, reap
from workers.identity import identity
from workers.stopping import stopping

# A world may take long to build: many minutes for an image, hence far above the other tasks.
HARD_S = 7200

_bench: Bench | None = None


def bench() -> Bench:
    """Return this process's bench, made on first use: never before the fork."""
    global _bench  # noqa: PLW0603 - one per process is the point.
    if _bench is None:
        found = identity()
        name = found.name if found else platform.node()
        _bench = Bench(f"{name}:{os.getpid()}", stopping, found.offer if found else None)
    return _bench


@worker_process_shutdown.connect
def put_away(**_: Any) -> None:
    """End the sandbox with its process."""
    if _bench is not None:
        _bench.close()


@shared_task(name="inspections.drain", soft_time_limit=HARD_S - 60, time_limit=HARD_S)
def drain_ticket(hops: int = 0) -> int:
    """Do batches for some seconds; returns how many.

    Args:
        hops: How often the ticket was passed on by workers that could do nothing.
    """
    return drain(bench(), hops=hops)


@shared_task(name="inspections.reap")
def reap_leases() -> dict[str, int]:
    """Bring back what silent workers held; returns what was done."""
    return reap()
