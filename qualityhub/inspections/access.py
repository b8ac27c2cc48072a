"""The only ways to inspections, waivers and audits: who cannot see them is told there are none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qualityhub.accounts.access import check_role, not_found
from qualityhub.accounts.choices import Role
from qualityhub.engine.reports.reading import TRIAL_KEY
from qualityhub.inspections.models import AuditRun, Inspection, TrialRecord, Waiver
from qualityhub.platform.ids import is_public_id

if TYPE_CHECKING:
    from qualityhub.accounts.access import Actor


def access_inspection(actor: Actor, ref: str, need: Role = Role.VIEWER) -> Inspection:
    """Return an inspection by public id, with version, environment, domain, team and job.

    Raises:
        NotFoundError: Unknown, or not the actor's.
        ForbiddenError: Too small a role.
    """
    found = (
        Inspection.objects.select_related(
            "team", "version__environment__domain", "version__environment__team", "job", "audit_run"
        )
        .defer("worlds", "inputs")
        .filter(public_id=ref if is_public_id(ref, "insp") else "", team__in=actor.team_ids)
        .first()
    )
    if found is None:
        raise not_found("inspection")
    check_role(actor, found.team_id, need, "inspection")
    return found


def access_trial(actor: Actor, key: str, need: Role = Role.VIEWER) -> TrialRecord:
    """Return a stored trial by its key; raises as :func:`access_inspection` does.

    A key is a digest that anybody with the same files can compute: it opens nothing by itself. Of
    several teams of the actor that ran the same trial, the newest result counts.
    """
    known = TrialRecord.objects.filter(
        key=key if TRIAL_KEY.fullmatch(key) else "", team__in=actor.team_ids
    )
    found = known.order_by("-pk").first()
    if found is None:
        raise not_found("trial")
    check_role(actor, found.team_id, need, "trial")
    return found


def access_waiver(actor: Actor, ref: str, need: Role = Role.VIEWER) -> Waiver:
    """Return a waiver by public id; raises as :func:`access_inspection` does."""
    found = (
        Waiver.objects.select_related("environment__team", "environment__domain")
        .filter(
            public_id=ref if is_public_id(ref, "waiv") else "",
            environment__team__in=actor.team_ids,
        )
        .first()
    )
    if found is None:
        raise not_found("waiver")
    check_role(actor, found.environment.team_id, need, "waiver")
    return found


def access_audit(actor: Actor, ref: str, need: Role = Role.VIEWER) -> AuditRun:
    """Return an audit by public id; raises as :func:`access_inspection` does."""
    found = (
        AuditRun.objects.select_related("team")
        .filter(public_id=ref if is_public_id(ref, "audit") else "", team__in=actor.team_ids)
        .first()
    )
    if found is None:
        raise not_found("audit")
    check_role(actor, found.team_id, need, "audit")
    return found
