"""Forgets what has expired."""

from __future__ import annotations

from datetime import timedelta

from celery import shared_task
from django.contrib.sessions.models import Session
from django.db.models.functions import Now

from qualityhub.accounts.services import sign_in_links_purge
from qualityhub.inspections.planning import needs_purge
from qualityhub.inspections.retention import trials_let_go
from qualityhub.inspections.workers import workers_purge
from qualityhub.platform.heartbeats import heartbeats_purge
from qualityhub.platform.idempotency import idempotency_purge

KEYS_KEPT = timedelta(hours=24)
SILENT_PROCESSES_KEPT = timedelta(days=1)


@shared_task(name="housekeeping.expire")
def expire() -> dict[str, int]:
    """Delete what has expired and who has long been silent; returns how many of each."""
    return {
        "idempotency_keys": idempotency_purge(KEYS_KEPT),
        "sign_in_links": sign_in_links_purge(),
        "sessions": Session.objects.filter(expire_date__lt=Now()).delete()[0],
        "heartbeats": heartbeats_purge(SILENT_PROCESSES_KEPT),
        "workers": workers_purge(SILENT_PROCESSES_KEPT),
        "needs": needs_purge(),
    }


@shared_task(name="housekeeping.trials", soft_time_limit=3600, time_limit=3660)
def trials() -> dict[str, int]:
    """Remove results and outputs of trials that nothing refers to; returns how many of each."""
    return trials_let_go()
