"""What runs by itself, and when. Times are UTC; each entry names its queue."""

from __future__ import annotations

from typing import Any

from celery.schedules import crontab
from django.conf import settings

from qualityhub.platform.queue import HOUSEKEEPING


def schedule() -> dict[str, dict[str, Any]]:
    """Return Celery's schedule: name, task, time and queue."""
    return {
        "bring back what silent workers held": {
            "task": "inspections.reap",
            "schedule": 5.0,
            # Late ones are worth nothing: the next one does the same.
            "options": {"queue": HOUSEKEEPING, "expires": 30},
        },
        "nightly audit": {
            "task": "audits.nightly",
            "schedule": crontab(hour=settings.QH_AUDIT_HOUR, minute=30),
            "options": {"queue": HOUSEKEEPING, "expires": 6 * 3600},
        },
        "send gates again whose tickets were lost": {
            "task": "gate.sweep",
            "schedule": 60.0,
            "options": {"queue": HOUSEKEEPING, "expires": 60},
        },
        "prove that stored sums are what their rows add up to": {
            "task": "gate.verify_rollups",
            "schedule": crontab(hour=settings.QH_AUDIT_HOUR, minute=10),
            "options": {"queue": HOUSEKEEPING, "expires": 6 * 3600},
        },
        "let go of the trials behind old verdicts": {
            "task": "housekeeping.trials",
            "schedule": crontab(hour=settings.QH_AUDIT_HOUR, minute=55),
            "options": {"queue": HOUSEKEEPING, "expires": 6 * 3600},
        },
        "forget what has expired": {
            "task": "housekeeping.expire",
            "schedule": crontab(minute=17),
            "options": {"queue": HOUSEKEEPING, "expires": 3600},
        },
    }
