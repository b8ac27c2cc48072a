"""From round to round: which trials an inspection needs next, or its end. No foreign code here."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from django.db.models import F
from django.db.models.functions import Coalesce, Now

from qualityhub.engine.report import InspectionReport
from qualityhub.engine.rules.advance import advance
from qualityhub.engine.trials.codec import to_json
from qualityhub.engine.trials.drivers import plan_trials
from qualityhub.engine.trials.runner import world_digests
from qualityhub.inspections.choices import BatchKind, BatchStatus, InspectionStatus
from qualityhub.inspections.claims import Lease, batch_done, fenced
from qualityhub.inspections.models import Batch, Inspection
from qualityhub.inspections.planning import TrialNeeds
from qualityhub.inspections.results import (
    Known,
    is_failure,
    observed,
    results_known,
    results_link,
    results_store,
)
from qualityhub.inspections.subjects import facts_now, inputs_now, tally_of
from qualityhub.inspections.tickets import tickets_send
from qualityhub.inspections.verdicts import inspection_finish
from qualityhub.inspections.waivers import today_utc
from qualityhub.platform.jobs import job_progress, job_start
from qualityhub.platform.text import storable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from qualityhub.engine.rules import advance as engine
    from qualityhub.engine.trials.model import Trial, TrialResult

logger = logging.getLogger(__name__)
PER_BATCH = {"function": 40, "scorer": 5, "episode": 4, "task": 1}
"""Trials per batch by family: a few seconds of work."""
TRIES = 3
"""Attempts of a batch whose trials fail by our own fault, before that is the answer."""


@dataclass(slots=True)
class Turn:
    """What an advance came to.

    Attributes:
        report: The end, or None.
        trials: What must run first.
        asks: How many asks these answer.
        known: Trials whose results were stored already.
        seconds: Wall-clock seconds that the report says.
    """

    report: InspectionReport | None = None
    trials: list[Trial] = field(default_factory=list)
    asks: int = 0
    known: list[tuple[Trial, Known]] = field(default_factory=list)
    seconds: float = 0.0


def prepare_begin(lease: Lease) -> None:
    """Note that an inspection is being prepared."""
    with fenced(lease) as (inspection, _):
        job_start(inspection.job)
        Inspection.objects.filter(pk=inspection.pk).update(
            status=InspectionStatus.PREPARING, started_at=Coalesce("started_at", Now())
        )


def prepare_tell(lease: Lease, text: str) -> None:
    """Show in the job what is being built."""
    job_progress(lease.batch.inspection.job, done=0, message=storable(text))


def prepare_end(
    lease: Lease, worlds: Mapping[str, Mapping[str, Any]], *, ownership: bool | None = None
) -> None:
    """Store the worlds of an inspection, and queue its first step.

    Args:
        lease: The claim on its preparation.
        worlds: Documents by task id.
        ownership: Whether file owners are real where they were prepared; None without a sandbox.
    """
    owners = "" if ownership is None else "yes" if ownership else "no"
    with fenced(lease) as (inspection, batch):
        Inspection.objects.filter(pk=inspection.pk).update(
            status=InspectionStatus.RUNNING,
            worlds=dict(worlds),
            inputs={**inputs_now(inspection, today_utc().isoformat()), "ownership": owners},
            facts=facts_now(),
        )
        batch_done(batch)
        _queue_advance(inspection, batch.round)


def advance_run(lease: Lease, subject: engine.Inspection) -> None:
    """Decide what an inspection needs next, from all that is stored, and store that."""
    inspection = lease.batch.inspection
    turn = _turn(inspection, subject, lease)
    with fenced(lease) as (inspection, batch):
        linked = results_link(inspection, turn.known)
        Inspection.objects.filter(pk=inspection.pk).update(
            trials_cached=F("trials_cached") + linked,
            trials_done=F("trials_done") + linked,
            trials_total=F("trials_total") + linked + len(turn.trials),
            asks_total=F("asks_total") + turn.asks,
        )
        batch_done(batch)
        if turn.report is not None:
            inputs = {**inspection.inputs, "seconds": turn.seconds}
            inspection_finish(inspection, turn.report, inputs)
        else:
            _queue_round(inspection, turn.trials, subject, batch.round + 1)
        _show_progress(inspection, batch.round + 1)


def batch_store(lease: Lease, results: Sequence[tuple[Trial, TrialResult]]) -> None:
    """Store what a batch's trials showed; after the last batch of a round, queue the next step.

    Trials that failed by our own fault are tried again by another attempt, up to a bound.
    """
    with fenced(lease) as (inspection, batch):
        again = [trial for trial, result in results if is_failure(result)]
        if batch.attempts >= TRIES:
            again = []
        skipped = {trial.key for trial in again}
        _count(
            inspection,
            results_store(
                inspection, batch, [item for item in results if item[0].key not in skipped]
            ),
        )
        if again:
            _requeue(batch, again, "our machinery failed")
        else:
            batch_done(batch)
            _close(inspection, batch)
        _show_progress(inspection, batch.round)


def batch_store_part(
    lease: Lease, results: Sequence[tuple[Trial, TrialResult]], rest: Sequence[Trial]
) -> None:
    """Store what was done of a batch and give the rest back: this worker is about to end."""
    with fenced(lease) as (inspection, batch):
        good = [item for item in results if not is_failure(item[1])]
        failed = [trial for trial, result in results if is_failure(result)]
        _count(inspection, results_store(inspection, batch, good))
        _requeue(batch, [*failed, *rest], "")
        # An orderly end is no failed attempt.
        Batch.objects.filter(pk=batch.pk).update(attempts=F("attempts") - 1)


def _turn(inspection: Inspection, subject: engine.Inspection, lease: Lease) -> Turn:
    state = observed(inspection, whole=False)
    turn = Turn(seconds=_seconds_so_far(lease))
    worlds = world_digests(subject.worlds)
    while True:
        step = advance(subject, state.seen, tally_of(state, turn.seconds))
        if step.report is not None:
            turn.report = step.report
            return turn
        trials = plan_trials(subject.environment, worlds, step.asks, inspection.generation)
        found = results_known(inspection.team_id, [trial.key for trial in trials])
        turn.asks += len(step.asks)
        for trial in trials:
            item = found.get(trial.key)
            if item is not None and len(item.result.observations) == len(trial.asks):
                turn.known.append((trial, item))
                state.take(trial.key, trial.asks, item.result, cached=True)
            else:
                turn.trials.append(trial)
        if turn.trials:
            return turn


def _seconds_so_far(lease: Lease) -> float:
    row = (
        Inspection.objects.filter(pk=lease.batch.inspection_id)
        .annotate(clock=Now())
        .values_list("started_at", "clock")
        .get()
    )
    return round((row[1] - row[0]).total_seconds(), 3) if row[0] else 0.0


def _queue_round(
    inspection: Inspection, trials: Sequence[Trial], subject: engine.Inspection, number: int
) -> None:
    size = PER_BATCH[subject.environment.family]
    needs = TrialNeeds(inspection, subject.environment, subject.worlds)
    alike: dict[int, list[Trial]] = {}
    for key, trial in zip(needs.keys(trials), trials, strict=True):
        alike.setdefault(key, []).append(trial)
    cut = [
        (key, same[start : start + size])
        for key, same in alike.items()
        for start in range(0, len(same), size)
    ]
    Batch.objects.bulk_create(
        [
            Batch(
                inspection=inspection,
                domain_id=inspection.domain_id,
                priority=inspection.priority,
                kind=BatchKind.TRIALS,
                round=number,
                ordinal=ordinal,
                trials=[to_json(trial) for trial in part],
                trial_count=len(part),
                needs=key,
            )
            for ordinal, (key, part) in enumerate(cut)
        ],
        batch_size=500,
    )
    Inspection.objects.filter(pk=inspection.pk).update(round=number, open_batches=len(cut))
    tickets_send(len(cut))


def _queue_advance(inspection: Inspection, number: int) -> None:
    Batch.objects.create(
        inspection=inspection,
        domain_id=inspection.domain_id,
        priority=inspection.priority,
        kind=BatchKind.ADVANCE,
        round=number,
    )
    tickets_send(1)


def _close(inspection: Inspection, batch: Batch) -> None:
    Inspection.objects.filter(pk=inspection.pk).update(open_batches=F("open_batches") - 1)
    if inspection.open_batches == 1:  # Read under the lock, before this batch ended.
        _queue_advance(inspection, batch.round)


def _count(inspection: Inspection, stored: int) -> None:
    Inspection.objects.filter(pk=inspection.pk).update(trials_done=F("trials_done") + stored)


def _requeue(batch: Batch, trials: Sequence[Trial], error: str) -> None:
    Batch.objects.filter(pk=batch.pk).update(
        status=BatchStatus.QUEUED,
        lease_token=None,
        lease_until=None,
        trials=[to_json(trial) for trial in trials],
        trial_count=len(trials),
        last_error=error,
    )


def _show_progress(inspection: Inspection, number: int) -> None:
    done, total = Inspection.objects.values_list("trials_done", "trials_total").get(
        pk=inspection.pk
    )
    # What it waits for must not hide behind the rest that goes on.
    message = inspection.waits_for or f"round {number}"
    job_progress(inspection.job, done=done, total=total, message=message)
