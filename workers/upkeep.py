"""Keeps this host's store below its cap, and sweeps what killed processes left there."""

from __future__ import annotations

import logging
import threading

from django.conf import settings

from qualityhub.engine.sandbox import reclaim

logger = logging.getLogger(__name__)
EVERY_S = 24 * 3600.0


class StoreKeeper(threading.Thread):
    """Looks after the store once a worker starts, and every day after that.

    A store is one host's, so each worker's main process does it for its own; the first that comes
    does it for all that share the data folder. A thread of its own: a large store takes minutes.
    """

    def __init__(self) -> None:
        super().__init__(name="store", daemon=True)
        self.ended = threading.Event()

    def run(self) -> None:
        """Prune, whatever state the store is in, until told to stop."""
        while not self.ended.is_set():
            try:
                keep_store()
            except Exception:
                logger.exception("store_not_kept")
            self.ended.wait(EVERY_S)


def keep_store() -> reclaim.Pruned | None:
    """Sweep, and remove what was unused for longest until the rest fits; None if others do it."""
    with reclaim.only_one(settings.QH_HOME) as mine:
        if not mine:
            return None
        done = reclaim.prune(settings.QH_HOME, max_bytes=settings.QH_STORE_MAX_BYTES or None)
    if done.removed or done.swept:
        fields = {"removed": len(done.removed), "swept": done.swept, "bytes": done.bytes}
        logger.info("store_kept", extra={"fields": fields})
    return done
