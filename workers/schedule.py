"""What runs by itself, and when. Times are UTC; each entry names its queue."""

from __future__ import annotations

from typing import Any

from celery.schedules import crontab

from qualityhub.platform.queue import HOUSEKEEPING


def schedule() -> dict[str, dict[str, Any]]:
    """Return Celery's schedule: name, task, time and queue."""
    return {
        "forget what has expired": {
            "task": "housekeeping.expire",
            "schedule": crontab(minute=17),
            "options": {"queue": HOUSEKEEPING, "expires": 3600},
        },
    }
