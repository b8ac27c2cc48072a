"""Writing checkpoints and evaluation runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import IntegrityError, transaction
from django.utils import timezone

from qualityhub.engine.errors import ConflictError, InvalidInputError
from qualityhub.gates.choices import RunStatus
from qualityhub.gates.models import NAME_LENGTH, Checkpoint, EvalRun
from qualityhub.platform.audit import audit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qualityhub.accounts.models import Team
    from qualityhub.registry.models import Domain


def checkpoint_create(
    *,
    team: Team,
    name: str,
    lineage: str = "",
    variant: str = "",
    parent: Checkpoint | None = None,
    attributes: Mapping[str, Any] | None = None,
    actor: str = "system",
) -> Checkpoint:
    """Create a checkpoint.

    Args:
        team: Whose it is.
        name: Unique in the team.
        lineage: The line of training it belongs to.
        variant: What tells it from others of that line, e.g. ``fp8``.
        parent: What it was trained from.
        attributes: Anything else worth keeping.
        actor: For the audit log.

    Raises:
        ConflictError: ``checkpoints.exists``.
        InvalidInputError: ``checkpoints.bad_name`` or a parent of another team.
    """
    checked_name("checkpoints", name)
    if parent is not None and parent.team_id != team.pk:
        raise InvalidInputError("checkpoints.foreign_parent", "The parent is another team's.")
    try:
        with transaction.atomic():
            checkpoint = Checkpoint.objects.create(
                team=team,
                name=name,
                lineage=lineage,
                variant=variant,
                parent=parent,
                attributes=dict(attributes or {}),
            )
    except IntegrityError as error:
        raise ConflictError(
            "checkpoints.exists",
            f"The team has a checkpoint {name!r} already.",
            f"Find it with GET /api/v1/checkpoints?name={name}, or choose another name.",
        ) from error
    audit(
        actor=actor,
        action="checkpoint.created",
        team=team.public_id,
        object_id=checkpoint.public_id,
        object_text=name,
    )
    return checkpoint


def eval_run_create(
    *,
    checkpoint: Checkpoint,
    name: str,
    domain: Domain | None = None,
    harness: Mapping[str, Any] | None = None,
    sampling: Mapping[str, Any] | None = None,
) -> EvalRun:
    """Open a run for the rollouts of one checkpoint.

    Args:
        checkpoint: What was evaluated.
        name: Unique for the checkpoint.
        domain: Domain of rows that name none.
        harness: Which harness ran it, version, hardware.
        sampling: Temperature and the like.

    Raises:
        ConflictError: ``runs.exists``.
        InvalidInputError: ``runs.bad_name`` or a domain of another team.
    """
    checked_name("runs", name)
    if domain is not None and domain.team_id != checkpoint.team_id:
        raise InvalidInputError("runs.foreign_domain", "The domain is another team's.")
    try:
        with transaction.atomic():
            return EvalRun.objects.create(
                checkpoint=checkpoint,
                name=name,
                domain=domain,
                harness=dict(harness or {}),
                sampling=dict(sampling or {}),
            )
    except IntegrityError as error:
        raise ConflictError(
            "runs.exists",
            f"The checkpoint has a run {name!r} already.",
            "A regrade or a repetition is a new run with a name of its own.",
        ) from error


def eval_run_seal(*, run: EvalRun, actor: str = "system") -> EvalRun:
    """Close a run for good: no more rows, so that what was decided from it can be decided again.

    Sealing twice changes nothing. Waits for rows that are being stored.

    Raises:
        ConflictError: ``runs.empty``: a run without rows.
    """
    with transaction.atomic():
        locked = (
            EvalRun.objects.select_for_update(no_key=True, of=("self",))
            .select_related("checkpoint__team")
            .get(pk=run.pk)
        )
        if locked.status == RunStatus.SEALED:
            return locked
        if not locked.rows:
            raise ConflictError(
                "runs.empty", "The run holds no rows yet.", "Send its rollouts, then seal it."
            )
        locked.status = RunStatus.SEALED
        locked.sealed_at = timezone.now()
        locked.save(update_fields=("status", "sealed_at"))
        audit(
            actor=actor,
            action="run.sealed",
            team=locked.checkpoint.team.public_id,
            object_id=locked.public_id,
            object_text=locked.name,
            after={"rows": locked.rows, "conflicts": locked.conflicts},
        )
    return locked


def checked_name(room: str, name: str) -> None:
    """Refuse names that cannot be shown in one line.

    Raises:
        InvalidInputError: ``<room>.bad_name``.
    """
    if not name.strip() or len(name) > NAME_LENGTH or not name.isprintable():
        raise InvalidInputError(
            f"{room}.bad_name", f"A name is 1 to {NAME_LENGTH} printable characters."
        )
