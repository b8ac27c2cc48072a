"""Writing baselines: an explicit record of what candidates are compared with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import transaction

from qualityhub.accounts.models import Team
from qualityhub.engine.errors import ConflictError, InvalidInputError
from qualityhub.gates.choices import BaselineKind, RunStatus
from qualityhub.gates.models import Baseline
from qualityhub.platform.audit import audit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qualityhub.gates.models import Checkpoint, EvalRun
    from qualityhub.registry.models import Domain


def baseline_set(
    *,
    team: Team,
    kind: str,
    runs: Sequence[EvalRun],
    domain: Domain | None = None,
    reason: str = "",
    actor: str = "system",
) -> Baseline:
    """Make sealed runs of one checkpoint the baseline of a team, or of one of its domains.

    The one in force before stays as a record, no longer active.

    Args:
        team: Whose baseline it is.
        kind: ``last_promoted`` or ``anchor``.
        runs: What was measured; together they are what candidates are compared with.
        domain: For this domain alone; None for all that have none of their own.
        reason: Why, for those who ask later.
        actor: For the audit log.

    Raises:
        InvalidInputError: An unknown kind, runs of several checkpoints, another team's domain.
        ConflictError: ``gates.run_open`` or ``gates.no_runs``.
    """
    if kind not in BaselineKind.values:
        raise InvalidInputError(
            "baselines.bad_kind", f"A baseline is one of: {', '.join(BaselineKind.values)}."
        )
    checkpoint = single_checkpoint("baseline", runs)
    if checkpoint.team_id != team.pk or (domain is not None and domain.team_id != team.pk):
        raise InvalidInputError("baselines.foreign", "The runs or the domain are another team's.")
    with transaction.atomic():
        # Two at once take turns, or both would find the same one in force.
        Team.objects.select_for_update(no_key=True).get(pk=team.pk)
        before = (
            Baseline.objects.select_related("checkpoint")
            .filter(team=team, kind=kind, domain=domain, active=True)
            .first()
        )
        if before is not None:
            before.active = False
            before.save(update_fields=("active",))
        baseline = Baseline.objects.create(
            team=team,
            kind=kind,
            domain=domain,
            checkpoint=checkpoint,
            reason=reason,
            set_by=actor[:300],
        )
        baseline.runs.set(runs)
        audit(
            actor=actor,
            action="baseline.set",
            team=team.public_id,
            object_id=baseline.public_id,
            object_text=f"{kind} {domain.slug if domain else 'of all domains'}",
            before={"checkpoint": before.checkpoint.public_id} if before else None,
            after={
                "checkpoint": checkpoint.public_id,
                "runs": [run.public_id for run in runs],
                "reason": reason,
            },
        )
    return baseline


def single_checkpoint(side: str, runs: Sequence[EvalRun]) -> Checkpoint:
    """Return the one checkpoint of sealed runs.

    Raises:
        ConflictError: ``gates.no_runs``; ``gates.run_open`` where one may still grow.
        InvalidInputError: ``gates.mixed_checkpoints``.
    """
    if not runs:
        raise ConflictError(
            "gates.no_runs", f"The {side} has no evaluation run.", "Send its rollouts first."
        )
    for run in runs:
        if run.status != RunStatus.SEALED:
            raise ConflictError(
                "gates.run_open",
                f"The {side} run {run.name!r} is still open.",
                f"Seal it: POST /api/v1/eval-runs/{run.public_id}/seal. A decision about rows "
                "that may still arrive could not be made again.",
            )
    if len({run.checkpoint_id for run in runs}) > 1:
        raise InvalidInputError(
            "gates.mixed_checkpoints",
            f"The {side} runs belong to several checkpoints.",
            "Compare one checkpoint with one other.",
        )
    return runs[0].checkpoint
