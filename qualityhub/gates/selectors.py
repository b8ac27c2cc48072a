"""Reads of this room. Every list takes the teams it may show and joins what it shows."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.db.models.functions import Now

from qualityhub.gates.choices import GateStatus
from qualityhub.gates.loading import rollups_of
from qualityhub.gates.models import Baseline, Checkpoint, EvalRun, Gate, GateDomain, GatePolicy

if TYPE_CHECKING:
    from collections.abc import Iterable

    from django.db.models import QuerySet

    from qualityhub.accounts.models import Team

__all__ = [
    "baseline_list",
    "checkpoint_list",
    "domain_latest_gate",
    "eval_run_list",
    "gate_get",
    "gate_list",
    "gate_waiting_ids",
    "policy_list",
    "policy_newest",
    "rollups_of",
    "run_ids_recent",
]

# The report of a gate of 300 domains has some 100 kB: lists do without.
_HEAVY = ("report", "inputs", "policy")


def checkpoint_list(teams: Team | Iterable[int]) -> QuerySet[Checkpoint]:
    """Return the checkpoints of a team, or of teams by primary key, newest first; one query."""
    return (
        Checkpoint.objects.filter(team__in=_ids(teams))
        .select_related("team", "parent")
        .order_by("-id")
    )


def eval_run_list(teams: Team | Iterable[int]) -> QuerySet[EvalRun]:
    """Return evaluation runs with checkpoint and domain, newest first; one query."""
    return (
        EvalRun.objects.filter(checkpoint__team__in=_ids(teams))
        .select_related("checkpoint__team", "domain")
        .order_by("-id")
    )


def gate_list(teams: Team | Iterable[int]) -> QuerySet[Gate]:
    """Return gates with checkpoints and runs, newest first, without reports; three queries."""
    return (
        Gate.objects.filter(team__in=_ids(teams))
        .select_related("team", "candidate", "baseline", "policy_row")
        .prefetch_related("candidate_runs", "baseline_runs")
        .defer(*_HEAVY)
        .order_by("-id")
    )


def gate_get(teams: Team | Iterable[int], public_id: str) -> Gate | None:
    """Return a gate with its report, checkpoints and runs, or None; three queries."""
    return (
        Gate.objects.filter(team__in=_ids(teams), public_id=public_id)
        .select_related("team", "candidate", "baseline", "policy_row")
        .prefetch_related("candidate_runs", "baseline_runs")
        .first()
    )


def domain_latest_gate(teams: Team | Iterable[int]) -> dict[int, GateDomain]:
    """Return the newest decided result of every domain by the domain's primary key; one query.

    Each row has its ``gate`` (without report) and the gate's ``candidate`` and ``baseline``.
    """
    rows = (
        GateDomain.objects.filter(gate__team__in=_ids(teams), gate__status=GateStatus.DECIDED)
        .select_related("gate__candidate", "gate__baseline", "domain")
        .defer(*(f"gate__{name}" for name in _HEAVY))
        .order_by("domain_id", "-gate_id")
        .distinct("domain_id")
    )
    return {row.domain_id: row for row in rows}


def policy_list(teams: Team | Iterable[int]) -> QuerySet[GatePolicy]:
    """Return all versions of all policies, newest first; one query."""
    return GatePolicy.objects.filter(team__in=_ids(teams)).select_related("team").order_by("-id")


def policy_newest(team: Team, name: str) -> GatePolicy | None:
    """Return the newest version of a policy that is not retired, or None."""
    rows = GatePolicy.objects.select_related("team").filter(team=team, name=name, retired=False)
    return rows.order_by("-version").first()


def baseline_list(teams: Team | Iterable[int], *, active: bool = True) -> QuerySet[Baseline]:
    """Return baselines with their runs, newest first; two queries.

    Args:
        teams: A team, or primary keys of teams.
        active: Only those in force; else those that once were, too.
    """
    rows = Baseline.objects.filter(team__in=_ids(teams))
    if active:
        rows = rows.filter(active=True)
    return (
        rows.select_related("team", "domain", "checkpoint").prefetch_related("runs").order_by("-id")
    )


def gate_waiting_ids(*, older_than_s: float = 30.0) -> list[str]:
    """Return public ids of gates that still wait after so many seconds, oldest first.

    A ticket may be lost with the broker; whoever schedules sends these again.
    """
    waiting = Gate.objects.filter(
        status=GateStatus.WAITING, created_at__lt=Now() - timedelta(seconds=older_than_s)
    )
    return list(waiting.order_by("id").values_list("public_id", flat=True)[:1000])


def run_ids_recent(*, days: int = 7) -> list[int]:
    """Return primary keys of runs opened within so many days: what a nightly check looks at."""
    recent = EvalRun.objects.filter(created_at__gt=Now() - timedelta(days=days))
    return list(recent.order_by("id").values_list("pk", flat=True))


def _ids(teams: Team | Iterable[int]) -> list[Any]:
    pk = getattr(teams, "pk", None)
    return [pk] if pk is not None else list(teams)  # type: ignore[arg-type]
