"""The audit log: who did what to what, never changed afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import models
from django.db.models.functions import Now

from qualityhub.platform.requestid import current_request_id

if TYPE_CHECKING:
    from collections.abc import Mapping


class AuditEvent(models.Model):
    """One decision or change. Names are copied as text, so that the row outlives what it names."""

    at = models.DateTimeField(db_default=Now(), editable=False)
    team = models.CharField(
        max_length=40, blank=True, help_text="Public id; empty for the whole hub."
    )
    actor = models.CharField(max_length=300)
    action = models.CharField(max_length=80)
    object_id = models.CharField(max_length=100, blank=True)
    object_text = models.CharField(max_length=300, blank=True)
    before = models.JSONField(null=True, blank=True)
    after = models.JSONField(null=True, blank=True)
    request_id = models.CharField(max_length=64, blank=True)

    class Meta:
        """Read by team and by object, newest first."""

        indexes = (
            models.Index(fields=["team", "-id"], name="audit_team"),
            models.Index(fields=["object_id", "-id"], name="audit_object"),
        )

    def __str__(self) -> str:
        return f"{self.actor} {self.action} {self.object_text}"


def audit(
    *,
    actor: str,
    action: str,
    team: str = "",
    object_id: str = "",
    object_text: str = "",
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
) -> AuditEvent:
    """Write one event in the caller's transaction.

    Args:
        actor: Who, as text: an e-mail address, a token's name, or ``system``.
        action: Dotted verb in the past tense, e.g. ``token.created``.
        team: Public id of the team it happened in.
        object_id: Public id of what it happened to.
        object_text: Its name at that time.
        before: Changed fields before.
        after: Changed fields after; never secrets.
    """
    return AuditEvent.objects.create(
        actor=actor[:300],
        action=action,
        team=team,
        object_id=object_id[:100],
        object_text=object_text[:300],
        before=dict(before) if before is not None else None,
        after=dict(after) if after is not None else None,
        request_id=current_request_id(),
    )
