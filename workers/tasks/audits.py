"""The nightly audit."""

from __future__ import annotations

from celery import shared_task

from qualityhub.inspections.audits import audit_nightly
from qualityhub.inspections.subjects import facts_now


@shared_task(name="audits.nightly")
def nightly() -> list[str]:
    """Start the audits of the night; returns their public ids."""
    return [run.public_id for run in audit_nightly(facts_now())]
