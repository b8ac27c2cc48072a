"""Operators look at rows here; changes go through services, which check and record them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin

from qualityhub.platform.models import AuditEvent, Heartbeat, Job

if TYPE_CHECKING:
    from django.http import HttpRequest

    ModelAdmin = admin.ModelAdmin[Any]
else:
    ModelAdmin = admin.ModelAdmin


class LookOnlyAdmin(ModelAdmin):
    """Shows rows and changes none."""

    def has_add_permission(self, request: HttpRequest) -> bool:  # noqa: ARG002
        """Nobody adds here."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        """Nobody changes here."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # noqa: ARG002
        """Nobody deletes here."""
        return False


@admin.register(AuditEvent)
class AuditEventAdmin(LookOnlyAdmin):
    """Who did what."""

    list_display = ("at", "actor", "action", "object_text", "team", "request_id")
    list_filter = ("action",)
    search_fields = ("actor", "object_id", "object_text", "request_id")


@admin.register(Job)
class JobAdmin(LookOnlyAdmin):
    """Work and how far it is."""

    list_display = ("public_id", "kind", "status", "progress_done", "progress_total", "created_at")
    list_filter = ("kind", "status")
    search_fields = ("public_id", "object_id")


@admin.register(Heartbeat)
class HeartbeatAdmin(LookOnlyAdmin):
    """Workers and schedulers."""

    list_display = ("name", "kind", "seen_at")
