"""Operators look at results and gates here. Rollouts are too many for a page, and have none."""

from __future__ import annotations

from django.contrib import admin

from qualityhub.gates.models import Baseline, Checkpoint, EvalRun, Gate, GatePolicy
from qualityhub.platform.admin import LookOnlyAdmin


@admin.register(Checkpoint)
class CheckpointAdmin(LookOnlyAdmin):
    """Checkpoints."""

    list_display = ("name", "team", "lineage", "variant", "created_at")
    list_select_related = ("team",)
    search_fields = ("name", "public_id")


@admin.register(EvalRun)
class EvalRunAdmin(LookOnlyAdmin):
    """Evaluation runs."""

    list_display = ("name", "checkpoint", "status", "rows", "conflicts", "created_at")
    list_filter = ("status",)
    list_select_related = ("checkpoint",)
    search_fields = ("name", "public_id")


@admin.register(Gate)
class GateAdmin(LookOnlyAdmin):
    """Gates."""

    list_display = ("public_id", "candidate", "baseline", "status", "verdict", "decided_at")
    list_filter = ("status", "verdict")
    list_select_related = ("candidate", "baseline")
    search_fields = ("public_id", "candidate__name")


@admin.register(GatePolicy)
class GatePolicyAdmin(LookOnlyAdmin):
    """Gate policies."""

    list_display = ("name", "version", "team", "retired", "created_by", "created_at")
    list_select_related = ("team",)
    search_fields = ("name", "public_id")


@admin.register(Baseline)
class BaselineAdmin(LookOnlyAdmin):
    """Baselines."""

    list_display = ("team", "domain", "kind", "checkpoint", "active", "set_by", "set_at")
    list_filter = ("kind", "active")
    list_select_related = ("team", "domain", "checkpoint")
