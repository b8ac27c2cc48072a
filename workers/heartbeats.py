"""Signs of life of the worker and the scheduler, as rows that ``/readyz`` reads."""

from __future__ import annotations

import logging
import os
import platform
import threading
import time
from dataclasses import replace
from typing import Any

from celery.beat import Scheduler
from django.db import connection

from qualityhub.engine.sandbox.engine import engine_address
from qualityhub.inspections.workers import worker_beat, worker_ended
from qualityhub.platform.heartbeats import HeartbeatKind, heartbeat, heartbeat_forget
from workers.identity import identity

logger = logging.getLogger(__name__)
EVERY_S = 5.0
BEAT_EVERY_S = 10


class WorkerPulse(threading.Thread):
    """Writes a worker's heartbeat until told to stop.

    A thread of the worker's main process: a busy pool does not silence it, a hung one does not
    either; hung batches are what leases are for.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name="heartbeat", daemon=True)
        self.worker = name
        self.ended = threading.Event()
        self.labels = {"pid": os.getpid(), "host": platform.node(), "arch": platform.machine()}

    def run(self) -> None:
        """Beat, whatever the database does meanwhile."""
        while not self.ended.is_set():
            beat_once(self.worker, HeartbeatKind.WORKER, self.labels)
            show_worker()
            self.ended.wait(EVERY_S)


class BeatingScheduler(Scheduler):
    """The in-memory scheduler; its tick shows that it turns.

    No state file: what was missed while it was down is found by looking for stale rows.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.max_interval = BEAT_EVERY_S
        self._shown_at = 0.0

    def tick(self, *args: Any, **kwargs: Any) -> Any:
        """Send what is due, and note the tick now and then."""
        wait = super().tick(*args, **kwargs)
        if time.monotonic() - self._shown_at >= BEAT_EVERY_S / 2:
            self._shown_at = time.monotonic()
            beat_tick()
        return min(wait, BEAT_EVERY_S)


_pulse: WorkerPulse | None = None


def start_worker(name: str) -> None:
    """Begin the worker's heartbeat."""
    global _pulse  # noqa: PLW0603 - one worker per process.
    _pulse = WorkerPulse(name)
    _pulse.start()


def stop_worker() -> None:
    """End the worker's heartbeat and forget it."""
    if _pulse is None:
        return
    _pulse.ended.set()
    _pulse.join(EVERY_S)
    found = identity()
    try:
        heartbeat_forget(_pulse.worker)
        if found is not None:
            worker_ended(found.name, found.offer.session)
    except Exception:
        logger.exception("heartbeat_not_forgotten")
    finally:
        connection.close()


def beat_tick() -> None:
    """Note that the scheduler turns."""
    beat_once("beat", HeartbeatKind.BEAT, {"pid": os.getpid()})


def show_worker() -> None:
    """Write what this worker can do; a container engine may have come or gone meanwhile."""
    found = identity()
    if found is None:
        return
    try:
        offer = replace(found.offer, engine=bool(engine_address()))
        worker_beat(found.name, offer, found.processes)
    except Exception:
        logger.exception("worker_not_shown")
    finally:
        connection.close()


def beat_once(name: str, kind: HeartbeatKind, labels: dict[str, Any]) -> None:
    """Write one heartbeat; an unreachable database is logged, not fatal.

    The connection is closed each time: worker processes are forked from this one.
    """
    try:
        heartbeat(name, kind, labels)
    except Exception:
        logger.exception("heartbeat_failed")
    finally:
        connection.close()
