"""Decides gates, and proves at night that stored sums still are what their rows add up to."""

from __future__ import annotations

import logging

from celery import shared_task

from qualityhub.gates.selectors import gate_waiting_ids, run_ids_recent
from qualityhub.gates.services import gate_decide, rollups_verify_all
from qualityhub.platform import queue

logger = logging.getLogger(__name__)


@shared_task(name="gate.decide")
def decide(gate_id: str) -> str:
    """Decide one gate; returns where it stands then."""
    return str(gate_decide(gate_id).status)


@shared_task(name="gate.sweep")
def sweep() -> int:
    """Send the gates again whose tickets were lost with the broker; returns how many."""
    waiting = gate_waiting_ids()
    for gate_id in waiting:
        queue.send("gate.decide", (gate_id,), queue.GATE)
    return len(waiting)


@shared_task(name="gate.verify_rollups")
def verify_rollups() -> int:
    """Recompute the sums of recent runs; returns how many differ, each of them in the log."""
    return rollups_verify_all(run_ids_recent())
