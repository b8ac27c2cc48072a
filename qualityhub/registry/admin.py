"""Operators look at environments here."""

from __future__ import annotations

from django.contrib import admin

from qualityhub.platform.admin import LookOnlyAdmin
from qualityhub.registry.models import Domain, Environment, EnvironmentVersion


@admin.register(Domain)
class DomainAdmin(LookOnlyAdmin):
    """Domains."""

    list_display = ("slug", "name", "team")
    list_select_related = ("team",)
    search_fields = ("slug", "name")


@admin.register(Environment)
class EnvironmentAdmin(LookOnlyAdmin):
    """Environments."""

    list_display = ("slug", "domain", "team", "created_at")
    list_select_related = ("domain", "team")
    search_fields = ("slug", "name", "public_id")


@admin.register(EnvironmentVersion)
class EnvironmentVersionAdmin(LookOnlyAdmin):
    """Versions."""

    list_display = ("public_id", "environment", "adapter", "task_count", "admission", "created_at")
    list_filter = ("admission", "adapter")
    list_select_related = ("environment__domain",)
    search_fields = ("public_id", "digest")
