"""What a stored trial showed and wrote, for people of its team."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from qualityhub.engine.errors import NotFoundError
from qualityhub.engine.trials.evidence import (
    Part,
    evidence_document,
    trial_document,
    unpack_outputs,
)
from qualityhub.engine.trials.model import Ask
from qualityhub.inspections.models import Inspection, InspectionTrial
from qualityhub.inspections.results import evidence_store, results_known
from qualityhub.platform.text import storable_json

if TYPE_CHECKING:
    from qualityhub.engine.trials.model import TrialResult
    from qualityhub.inspections.models import TrialRecord

SHOWN_INSPECTIONS = 20


def trial_shown(record: TrialRecord) -> dict[str, Any]:
    """Return a trial without its outputs: ``qualityhub.trial/1`` and where it was used.

    Raises:
        NotFoundError: The stored result is damaged; the next inspection that needs it runs it.
    """
    document = trial_document(_result(record), _asks(record))
    document["inspections"] = [row.public_id for row in trial_inspections(record)]
    document["stored_at"] = record.created_at.isoformat()
    return _clean(document)


def evidence_shown(record: TrialRecord) -> dict[str, Any]:
    """Return what a trial wrote: ``qualityhub.evidence/1``; previews where no more is left.

    Raises:
        NotFoundError: The stored result is damaged.
    """
    result = _result(record)
    return _clean(evidence_document(result, _parts(result)))


def trial_inspections(record: TrialRecord) -> list[Inspection]:
    """Return the newest inspections that a trial answered, with their environment; one query."""
    return list(
        Inspection.objects.filter(trials__record=record)
        .select_related("version__environment")
        .defer("report", "worlds", "inputs")
        .order_by("-id")[:SHOWN_INSPECTIONS]
    )


def _asks(record: TrialRecord) -> list[Ask]:
    """Return what the trial answered in the team's newest inspection that used it."""
    used = InspectionTrial.objects.filter(record=record, inspection__team=record.team_id)
    asks = used.order_by("-inspection_id").values_list("asks", flat=True).first()
    return msgspec.convert(asks or [], list[Ask])


def _result(record: TrialRecord) -> TrialResult:
    known = results_known(record.team_id, [record.key]).get(record.key)
    if known is None:
        raise NotFoundError(
            "trial.damaged",
            "The stored result of this trial is damaged and counts as absent.",
            "Inspect the version again: what is absent runs again.",
        )
    return known.result


def _parts(result: TrialResult) -> tuple[Part, ...] | None:
    return unpack_outputs(evidence_store().get(result.evidence)) if result.evidence else None


def _clean(document: dict[str, Any]) -> dict[str, Any]:
    cleaned: Any = storable_json(document)
    return dict(cleaned)
