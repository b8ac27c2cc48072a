"""All tables of this room; each is defined beside the functions that write it."""

from __future__ import annotations

from qualityhub.platform.audit import AuditEvent
from qualityhub.platform.heartbeats import Heartbeat
from qualityhub.platform.idempotency import IdempotencyKey
from qualityhub.platform.jobs import Job

__all__ = ["AuditEvent", "Heartbeat", "IdempotencyKey", "Job"]
