"""Roles and scopes."""

from __future__ import annotations

from django.db import models


class Role(models.TextChoices):
    """What a member may do, each including those before it."""

    VIEWER = "viewer"
    CONTRIBUTOR = "contributor"
    GATEKEEPER = "gatekeeper"
    ADMIN = "admin"

    def includes(self, other: Role) -> bool:
        """Tell whether this role may do what the other may."""
        order = list(Role)
        return order.index(self) >= order.index(other)


class Scope(models.TextChoices):
    """What a token may be used for."""

    ENVIRONMENTS_READ = "environments:read", "Read environments, inspections and findings"
    ENVIRONMENTS_WRITE = "environments:write", "Create environments and upload versions"
    INSPECTIONS_WRITE = "inspections:write", "Start and cancel inspections, ask for waivers"
    ADMISSION_READ = "admission:read", "Ask what is admitted"
    RESULTS_WRITE = "results:write", "Send checkpoints, evaluation runs and rollouts"
    GATES_READ = "gates:read", "Read checkpoints, runs and gates"
    GATES_WRITE = "gates:write", "Start gates, set baselines and policies"
    TOKENS_WRITE = "tokens:write", "Create and revoke the owner's tokens"
    ADMIN = "admin", "Everything the owner's role allows"


JOB_SCOPES = {"inspection": Scope.ENVIRONMENTS_READ, "gate.decide": Scope.GATES_READ}
"""By a job's kind, what a token needs to see it: the same as for what the job makes.

Jobs of other kinds are seen in the browser and with ``admin`` alone.
"""
