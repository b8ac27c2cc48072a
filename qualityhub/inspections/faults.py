"""What fails by a worker's own fault, and how long it leaves the work to others then."""

from __future__ import annotations

import logging
import time

from qualityhub.engine.errors import MachineryError
from qualityhub.inspections.workers import worker_paused, worker_recovered

logger = logging.getLogger(__name__)
IN_A_ROW = 3
"""So many own faults, with nothing done between them, and a worker pauses."""
FIRST_S = 10.0
MOST_S = 600.0


def own_fault(error: Exception) -> str:
    """Return what is wrong with this worker; empty where the error may be anybody's.

    Disks, folders and blobs that are missing or full here may be fine elsewhere. The text names no
    path: teams may see it.
    """
    if isinstance(error, OSError):
        return f"{type(error).__name__}: {error.strerror or 'it says no more'}"
    if isinstance(error, MachineryError) and error.code == "blob.lost":
        return "It does not find a blob of the package in its store (blob.lost)."
    return ""


class Faults:
    """Counts the own faults of one worker process; each pause is twice as long as the one before.

    Args:
        session: Of its worker.
    """

    def __init__(self, session: str) -> None:
        self._session = session
        self._count = 0
        self._until = 0.0

    @property
    def pausing(self) -> bool:
        """Whether it should claim nothing now."""
        return time.monotonic() < self._until

    def add(self, reason: str) -> None:
        """Note one more, and begin a pause where there were several in a row."""
        self._count += 1
        if self._count < IN_A_ROW:
            return
        seconds = min(FIRST_S * 2.0 ** min(self._count - IN_A_ROW, 16), MOST_S)
        self._until = time.monotonic() + seconds
        logger.error(
            "worker_pauses",
            extra={"fields": {"faults": self._count, "seconds": seconds, "why": reason}},
        )
        worker_paused(self._session, reason, seconds)

    def clear(self) -> None:
        """Note that a batch was done."""
        if self._count >= IN_A_ROW:
            worker_recovered(self._session)
        self._count, self._until = 0, 0.0
