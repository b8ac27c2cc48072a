"""The operators' view of this app; rows are looked at here, not changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin

from qualityhub.inspections.models import AuditRun, Batch, Inspection, Waiver

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
