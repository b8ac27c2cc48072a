"""The operators' view of this app; rows are looked at here, not changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin

from qualityhub.inspections.models import AuditRun, Batch, Inspection, Share, Waiver, Worker
from qualityhub.platform.audit import audit

if TYPE_CHECKING:
    ModelAdmin = admin.ModelAdmin[Any]
else:
    ModelAdmin = admin.ModelAdmin


class LookOnly(ModelAdmin):
    """Shows rows; services write them."""

    def has_add_permission(self, request: Any, obj: Any = None) -> bool:  # noqa: ARG002
        """Nobody adds by hand."""
        return False

    def has_change_permission(self, request: Any, obj: Any = None) -> bool:  # noqa: ARG002
        """Nobody changes by hand."""
        return False

    def has_delete_permission(self, request: Any, obj: Any = None) -> bool:  # noqa: ARG002
        """Nobody deletes by hand."""
        return False


@admin.register(Inspection)
class InspectionAdmin(LookOnly):
    """Inspections."""

    list_display = ("public_id", "version", "trigger", "status", "verdict", "created_at")
    list_filter = ("status", "verdict", "trigger")
    list_select_related = ("version__environment__domain",)
    search_fields = ("public_id",)
    exclude = ("report", "worlds", "inputs")


@admin.register(Batch)
class BatchAdmin(LookOnly):
    """Units of work."""

    list_display = ("id", "kind", "round", "ordinal", "status", "attempts", "worker", "lease_until")
    list_filter = ("status", "kind", "priority")
    exclude = ("trials",)


@admin.register(Waiver)
class WaiverAdmin(LookOnly):
    """Waivers."""

    list_display = ("public_id", "environment", "code", "task", "until", "revoked_at")
    list_select_related = ("environment__domain",)


@admin.register(AuditRun)
class AuditRunAdmin(LookOnly):
    """Audits."""

    list_display = ("public_id", "team", "trigger", "status", "started", "remaining", "created_at")
    list_select_related = ("team",)


@admin.register(Worker)
class WorkerAdmin(LookOnly):
    """Workers as they last said of themselves."""

    list_display = ("name", "version", "processes", "started_at", "seen_at")


@admin.register(Share)
class ShareAdmin(ModelAdmin):
    """What domains and teams get of the workers: the one thing that operators set here."""

    list_display = ("__str__", "most_leased", "weight")
    list_select_related = ("domain", "team")
    autocomplete_fields = ("domain",)

    def save_model(self, request: Any, obj: Any, form: Any, change: bool) -> None:
        """Save it, and record who did."""
        super().save_model(request, obj, form, change)
        self._record(request, obj, "share.changed" if change else "share.set")

    def delete_model(self, request: Any, obj: Any) -> None:
        """Delete it, and record who did."""
        self._record(request, obj, "share.removed")
        super().delete_model(request, obj)

    def delete_queryset(self, request: Any, queryset: Any) -> None:
        """Delete several, and record each."""
        for row in queryset:
            self.delete_model(request, row)

    def _record(self, request: Any, share: Share, action: str) -> None:
        team = share.team or share.domain.team  # type: ignore[union-attr] # One of the two is set.
        audit(
            actor=request.user.email,
            action=action,
            team=team.public_id,
            object_id=(share.domain or team).public_id,
            object_text=str(share),
            after={"most_leased": share.most_leased, "weight": share.weight},
        )
