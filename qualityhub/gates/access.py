"""The only ways to this room's shared objects: owner, teammate, outsider."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from django.db.models import Q

from qualityhub.accounts.access import Actor, check_role, not_found
from qualityhub.accounts.choices import Role
from qualityhub.gates.models import Baseline, Checkpoint, EvalRun, Gate, GatePolicy
from qualityhub.platform.ids import PublicIdModel, is_public_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.db.models import QuerySet

Row = TypeVar("Row", bound=PublicIdModel)


def access_checkpoint(actor: Actor, ref: str, need: Role = Role.VIEWER) -> Checkpoint:
    """Return a checkpoint by public id.

    Raises:
        NotFoundError: Unknown, or another team's.
        ForbiddenError: Too small a role.
    """
    rows = Checkpoint.objects.select_related("team", "parent").filter(team__in=actor.team_ids)
    checkpoint = _one(rows, ref, "ckpt", "checkpoint")
    check_role(actor, checkpoint.team_id, need, "checkpoint")
    return checkpoint


def access_run(actor: Actor, ref: str, need: Role = Role.VIEWER) -> EvalRun:
    """Return an evaluation run by public id; raises as :func:`access_checkpoint` does."""
    rows = EvalRun.objects.select_related("checkpoint__team", "domain").filter(
        checkpoint__team__in=actor.team_ids
    )
    run = _one(rows, ref, "run", "run")
    check_role(actor, run.checkpoint.team_id, need, "run")
    return run


def access_gate(actor: Actor, ref: str, need: Role = Role.VIEWER) -> Gate:
    """Return a gate by public id; raises as :func:`access_checkpoint` does."""
    rows = Gate.objects.select_related("team", "candidate", "baseline", "policy_row").filter(
        team__in=actor.team_ids
    )
    gate = _one(rows, ref, "gate", "gate")
    check_role(actor, gate.team_id, need, "gate")
    return gate


def access_policy(actor: Actor, ref: str, need: Role = Role.VIEWER) -> GatePolicy:
    """Return one version of a policy by public id; raises as :func:`access_checkpoint` does."""
    rows = GatePolicy.objects.select_related("team").filter(team__in=actor.team_ids)
    policy = _one(rows, ref, "pol", "policy")
    check_role(actor, policy.team_id, need, "policy")
    return policy


def access_baseline(actor: Actor, ref: str, need: Role = Role.VIEWER) -> Baseline:
    """Return a baseline by public id; raises as :func:`access_checkpoint` does."""
    rows = Baseline.objects.select_related("team", "domain", "checkpoint").filter(
        team__in=actor.team_ids
    )
    baseline = _one(rows, ref, "base", "baseline")
    check_role(actor, baseline.team_id, need, "baseline")
    return baseline


def _one(rows: QuerySet[Row], ref: str, prefix: str, what: str) -> Row:
    row = rows.filter(public_id=ref).first() if is_public_id(ref, prefix) else None
    if row is None:
        raise not_found(what)
    return row


def access_runs(actor: Actor, refs: Sequence[str], need: Role = Role.VIEWER) -> list[EvalRun]:
    """Return runs by public id; a checkpoint's id stands for all of its runs.

    Order and repetition do not matter. Raises as :func:`access_checkpoint` does.
    """
    runs = [ref for ref in refs if is_public_id(ref, "run")]
    checkpoints = [ref for ref in refs if is_public_id(ref, "ckpt")]
    rows = list(
        EvalRun.objects.select_related("checkpoint__team", "domain")
        .filter(checkpoint__team__in=actor.team_ids)
        .filter(Q(public_id__in=runs) | Q(checkpoint__public_id__in=checkpoints))
        .order_by("id")
    )
    found = {row.public_id for row in rows} | {row.checkpoint.public_id for row in rows}
    for ref in refs:
        if ref not in found:
            # A checkpoint without runs is there all the same.
            if is_public_id(ref, "ckpt"):
                access_checkpoint(actor, ref, need)
            else:
                raise not_found("run")
    for row in rows:
        check_role(actor, row.checkpoint.team_id, need, "run")
    return rows
