"""Tickets: messages that call a worker to the queue in PostgreSQL. Losing one loses nothing."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from kombu.exceptions import OperationalError

from qualityhub.inspections.claims import batches_waiting
from qualityhub.platform.queue import INSPECT, enqueue, producer

if TYPE_CHECKING:
    from collections.abc import Iterable

logger = logging.getLogger(__name__)
DRAIN = "inspections.drain"
MOST = 8
"""Tickets for one occasion; each drains for some seconds and renews itself while work waits."""


def tickets_send(wanted: int) -> None:
    """Call so many workers, at most a handful, once the current transaction has committed."""
    for _ in range(min(wanted, MOST)):
        enqueue(DRAIN, queue=INSPECT)


def ticket_pass_on(hops: int) -> None:
    """Call the next worker in place of one that cannot do what waits."""
    enqueue(DRAIN, hops, queue=INSPECT)


def tickets_waiting() -> int:
    """Return how many tickets no worker has taken yet.

    Raises:
        OperationalError: The broker does not answer.
    """
    connection = producer().connection_for_write()
    try:
        connection.ensure_connection(max_retries=1, interval_start=0, timeout=2)
        channel: Any = connection.channel()
        try:
            declared = channel.queue_declare(queue=INSPECT, passive=True)
        except connection.channel_errors:
            return 0  # An empty queue does not exist.
        return int(declared.message_count)
    finally:
        connection.release()


def tickets_poke(blocked: Iterable[int] = ()) -> int:
    """Make up for lost tickets where work waits; returns how many were sent.

    Bounded by what is in the broker already, so that a long backlog does not fill it.

    Args:
        blocked: Needs that no live worker meets; nobody is called for these.
    """
    waiting = batches_waiting(MOST, but=blocked)
    if not waiting:
        return 0
    try:
        missing = waiting - tickets_waiting()
    except (OperationalError, OSError) as error:
        logger.warning("broker_unreachable", extra={"fields": {"error": str(error)}})
        return 0
    tickets_send(max(0, missing))
    return max(0, missing)
