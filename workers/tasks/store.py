"""Keeps this host's store below its cap, and sweeps what killed processes left there."""

from __future__ import annotations

from celery import shared_task
from django.conf import settings

from qualityhub.engine.sandbox import reclaim


@shared_task(name="store.prune")
def prune() -> dict[str, int]:
    """Remove what was unused for longest until the rest fits; returns counts and bytes.

    Each host prunes by itself after it has built something; this is for the one that has not.
    """
    with reclaim.only_one(settings.QH_HOME) as mine:
        if not mine:
            return {"removed": 0, "swept": 0, "bytes": 0}
        done = reclaim.prune(settings.QH_HOME, max_bytes=settings.QH_STORE_MAX_BYTES or None)
    return {"removed": len(done.removed), "swept": done.swept, "bytes": done.bytes}
