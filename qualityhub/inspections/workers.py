"""Workers as rows: who lives, what each can do, and which work nobody can do now."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db.models import Count, DurationField, ExpressionWrapper, F, Min
from django.db.models.functions import Now

from qualityhub import __version__
from qualityhub.inspections.choices import OPEN, BatchStatus
from qualityhub.inspections.models import Batch, Inspection, Need, Worker
from qualityhub.inspections.needs import REFUSED, Offer, needs_from, offer_from, unmet, words_of
from qualityhub.platform.jobs import ACTIVE, Job
from qualityhub.platform.text import storable

if TYPE_CHECKING:
    from datetime import datetime

LIVE_S = 30
"""A worker silent for longer is stale; it beats every few seconds."""
THROUGHPUT_MINUTES = 5


def worker_beat(name: str, offer: Offer, processes: int) -> None:
    """Say that a worker lives and what it can do, by the database's clock.

    Args:
        name: As in the broker; no two workers of a hub have the same.
        offer: What it can do.
        processes: How many batches it does at once.
    """
    values = {
        "session": offer.session,
        "offer": offer.document(),
        "processes": processes,
        "version": __version__,
        "seen_at": Now(),
    }
    # Most beats change the time alone; a new session is a new start.
    if not Worker.objects.filter(name=name, session=offer.session).update(**values):
        Worker.objects.bulk_create(
            [Worker(name=name, started_at=Now(), **values)],
            update_conflicts=True,
            unique_fields=["name"],
            update_fields=[*values, "started_at", "trouble", "paused_until"],
        )


def worker_paused(session: str, trouble: str, seconds: float) -> None:
    """Note that a worker claims nothing for so long, and why."""
    Worker.objects.filter(session=session).update(
        trouble=storable(trouble)[:500], paused_until=Now() + timedelta(seconds=seconds)
    )


def worker_recovered(session: str) -> None:
    """Note that a worker does batches again."""
    Worker.objects.filter(session=session).update(trouble="", paused_until=None)


def others_live(session: str) -> bool:
    """Tell whether another worker lives that does not pause."""
    seen = Worker.objects.filter(seen_at__gte=Now() - timedelta(seconds=LIVE_S))
    return seen.exclude(session=session).exclude(paused_until__gt=Now()).exists()


def worker_ended(name: str, session: str) -> None:
    """Note that a worker ended in good order: it can do nothing from now on."""
    Worker.objects.filter(name=name, session=session).update(
        seen_at=Now() - timedelta(seconds=LIVE_S + 1)
    )


def workers_purge(silent_for: timedelta) -> int:
    """Forget workers silent for so long; returns how many."""
    return Worker.objects.filter(seen_at__lt=Now() - silent_for).delete()[0]


@dataclass(slots=True)
class WorkerState:
    """One worker, for operators.

    Attributes:
        worker: The row.
        live: Whether it was seen of late.
        silent_s: Seconds since it was seen.
        offer: What it can do.
        batches: What it does now.
        done: Batches that it did in the last minutes.
    """

    worker: Worker
    live: bool
    silent_s: float
    offer: Offer
    batches: list[Batch] = field(default_factory=list)
    done: int = 0

    @property
    def per_minute(self) -> float:
        """Batches per minute of late."""
        return self.done / THROUGHPUT_MINUTES


def worker_states() -> list[WorkerState]:
    """Return all workers, live ones first, with what they do; three queries."""
    age = ExpressionWrapper(Now() - F("seen_at"), output_field=DurationField())
    found = {
        row.name: WorkerState(
            row,
            live=row.age.total_seconds() <= LIVE_S,
            silent_s=max(0.0, row.age.total_seconds()),
            offer=offer_from(row.offer),
        )
        for row in Worker.objects.annotate(age=age).order_by("name")
    }
    leased = (
        Batch.objects.filter(status=BatchStatus.LEASED)
        .select_related("inspection__version__environment__domain", "inspection__team")
        .defer("trials", "inspection__report", "inspection__worlds", "inspection__inputs")
        .order_by("leased_at")
    )
    for batch in leased:
        state = found.get(worker_of(batch.worker))
        if state is not None:
            state.batches.append(batch)
    since = Now() - timedelta(minutes=THROUGHPUT_MINUTES)
    done = (
        Batch.objects.filter(status=BatchStatus.DONE, done_at__gt=since)
        .values_list("worker")
        .annotate(count=Count("pk"))
    )
    for worker, count in done:
        state = found.get(worker_of(worker))
        if state is not None:
            state.done += count
    return sorted(found.values(), key=lambda state: (not state.live, state.worker.name))


def worker_of(holder: str) -> str:
    """Return the worker's name from that of one of its processes."""
    return holder.rpartition(":")[0]


@dataclass(frozen=True, slots=True)
class Depth:
    """What waits for a worker.

    Attributes:
        waiting: Batches that wait.
        in_hand: Batches that are being done.
        reasons: What inspections wait for that no worker has, and how many of them.
    """

    waiting: int
    in_hand: int
    reasons: tuple[tuple[str, int], ...]


def queue_depth() -> Depth:
    """Return how much waits, and for what; two queries."""
    counts = dict(
        Batch.objects.filter(status__in=(BatchStatus.QUEUED, BatchStatus.LEASED))
        .values_list("status")
        .annotate(count=Count("pk"))
    )
    reasons = (
        Inspection.objects.filter(status__in=OPEN)
        .exclude(waits_for="")
        .values_list("waits_for")
        .annotate(count=Count("pk"))
        .order_by("-count", "waits_for")
    )
    return Depth(
        counts.get(BatchStatus.QUEUED, 0), counts.get(BatchStatus.LEASED, 0), tuple(reasons[:20])
    )


@dataclass(frozen=True, slots=True)
class Blocked:
    """Work that no live worker can do.

    Attributes:
        lacking: What the live worker lacks that lacks least; empty where none lives.
        last_seen: When one that could was last seen, or None.
        refused: Whether live workers have all but the world that it was prepared in.
    """

    lacking: tuple[str, ...]
    last_seen: datetime | None
    refused: bool


def waits_update() -> list[int]:
    """Say in every open inspection whether its work waits for a worker that is not there.

    Returns:
        Inspections, by primary key, whose worlds no live worker has and no live worker can make:
        they must be prepared again.
    """
    blocked = needs_blocked()
    patience = timedelta(seconds=settings.QH_WORKER_PATIENCE_S)
    waiting: dict[int, set[str]] = defaultdict(set)
    lost: set[int] = set()
    rows = (
        Batch.objects.filter(
            status=BatchStatus.QUEUED, needs__in=list(blocked), inspection__status__in=OPEN
        )
        .values("inspection_id", "needs")
        .annotate(first=Min("created_at"), clock=Now())
        .values_list("inspection_id", "needs", "first", "clock")
    )
    for inspection, needs, first, clock in rows:
        found = blocked[needs]
        since = max(first, found.last_seen) if found.last_seen else first
        if clock - since >= patience:
            waiting[inspection].add(_sentence(found))
            if found.refused:
                lost.add(inspection)
    open_ones = Inspection.objects.filter(status__in=OPEN)
    known = dict(open_ones.exclude(waits_for="").values_list("pk", "waits_for"))
    for pk in {*waiting, *known}:
        reason = storable(" ".join(sorted(waiting.get(pk, ()))))[:500]
        if reason != known.get(pk, ""):
            _tell(pk, reason)
    return sorted(lost)


def needs_blocked() -> dict[int, Blocked]:
    """Return what waiting work needs and no live worker has, by the needs' row."""
    keys = set(
        Batch.objects.filter(status=BatchStatus.QUEUED).values_list("needs", flat=True).distinct()
    )
    if not keys:
        return {}
    age = ExpressionWrapper(Now() - F("seen_at"), output_field=DurationField())
    workers = [
        (offer_from(offer), seen_at, age.total_seconds() <= LIVE_S)
        for offer, seen_at, age in Worker.objects.annotate(age=age).values_list(
            "offer", "seen_at", "age"
        )
    ]
    if not workers:
        return {}  # None has ever said what it is: nothing can be told about any.
    found: dict[int, Blocked] = {}
    documents: dict[int, dict[str, Any]] = {0: {}}
    documents.update(Need.objects.filter(pk__in=keys).values_list("pk", "document"))
    for key in keys & set(documents):
        needs = needs_from(documents[key])
        lacks = [(unmet(needs, offer), seen, live) for offer, seen, live in workers]
        if any(live and not lacking for lacking, _, live in lacks):
            continue
        of_live = sorted((lacking for lacking, _, live in lacks if live), key=len)
        found[key] = Blocked(
            tuple(of_live[0]) if of_live else (),
            max((seen for lacking, seen, _ in lacks if not lacking), default=None),
            refused=[REFUSED] in of_live,
        )
    return found


def _sentence(blocked: Blocked) -> str:
    seconds = settings.QH_WORKER_PATIENCE_S
    span = f"{round(seconds / 60)} min" if seconds >= 60 else f"{seconds} s"
    wanted = f" with {words_of(blocked.lacking)}" if blocked.lacking else ""
    return f"It needs a worker{wanted}; none was seen for {span}."


def _tell(pk: int, reason: str) -> None:
    Inspection.objects.filter(pk=pk, status__in=OPEN).update(
        waits_for=storable(reason), waits_since=Now() if reason else None
    )
    message = reason or "a worker can go on with it"
    Job.objects.filter(inspection=pk, status__in=ACTIVE).update(
        progress_message=storable(message)[:300]
    )
