"""What pages read, put together from the rooms' selectors; each has a constant query count."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from django.db.models import Count

from qualityhub.gates.models import Gate, GateDomain
from qualityhub.gates.selectors import domain_latest_gate
from qualityhub.inspections.choices import OPEN, InspectionStatus
from qualityhub.inspections.models import Inspection
from qualityhub.inspections.selectors import HEAVY, DomainOverview, domain_overview
from qualityhub.platform.heartbeats import HeartbeatKind, heartbeat_age
from qualityhub.registry.models import Environment, EnvironmentVersion

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from django.db.models import QuerySet

    from qualityhub.registry.models import Domain

VERDICTS = ("admitted", "partial", "pending", "rejected", "error", "not_judged", "empty")
TASK_VERDICTS = ("admitted", "pending", "quarantined", "error")
GATE_HEAVY = ("report", "inputs", "policy")
SHOWN_REGRESSIONS = 5
WORKER_SILENT_S = 60


@dataclass(slots=True)
class DomainRow:
    """One line of the overview.

    Attributes:
        overview: Tasks, findings, last inspection.
        states: Environments by the verdict on their newest version.
        gate: The newest decided gate in this domain.
    """

    overview: DomainOverview
    states: dict[str, int]
    gate: GateDomain | None


@dataclass(slots=True)
class GateCard:
    """The newest gate at a glance.

    Attributes:
        gate: With candidate and baseline.
        regressed: Its blocked domains, worst first, at most a few.
        counts: Domains by verdict.
    """

    gate: Gate
    regressed: list[GateDomain] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def hidden(self) -> int:
        """Blocked domains beyond those shown."""
        return self.counts.get("block", 0) - len(self.regressed)


@dataclass(slots=True)
class Overview:
    """The first page.

    Attributes:
        rows: One per domain.
        environments: How many, all domains.
        tasks: By verdict, all domains.
        running: Inspections under way.
        card: The newest gate, if there is one.
        workers_silent: Whether something waits and nobody works.
    """

    rows: list[DomainRow]
    environments: int
    tasks: Counter[str]
    running: int
    card: GateCard | None
    workers_silent: bool


def overview(team_ids: Sequence[int]) -> Overview:
    """Return everything the first page shows; some ten queries."""
    states = environment_states(team_ids)
    none: Counter[str] = Counter()
    gates = domain_latest_gate(team_ids)
    rows = [
        DomainRow(
            found,
            in_order(states.get(found.domain.pk, none)),
            gates.get(found.domain.pk),
        )
        for found in domain_overview(team_ids)
    ]
    tasks: Counter[str] = Counter()
    for row in rows:
        tasks.update(row.overview.tasks)
    running = sum(row.overview.running for row in rows)
    age = heartbeat_age(HeartbeatKind.WORKER) if running else None
    return Overview(
        rows,
        sum(row.overview.environments for row in rows),
        tasks,
        running,
        gate_card(team_ids),
        bool(running) and (age is None or age.total_seconds() > WORKER_SILENT_S),
    )


def in_order(states: Counter[str]) -> dict[str, int]:
    """Return counts of environments, most welcome first, without those that are none."""
    return {name: states[name] for name in VERDICTS if states[name]}


def environment_states(team_ids: Sequence[int]) -> dict[int, Counter[str]]:
    """Return environments by domain and by the verdict on their newest version; two queries."""
    states: dict[int, Counter[str]] = {}
    newest = (
        EnvironmentVersion.objects.filter(environment__team__in=team_ids)
        .order_by("environment_id", "-pk")
        .distinct("environment_id")
        .values_list("environment__domain", "admission")
    )
    for domain, admission in newest:
        states.setdefault(domain, Counter())[admission or "not_judged"] += 1
    empty = (
        Environment.objects.filter(team__in=team_ids, versions=None)
        .values_list("domain")
        .annotate(count=Count("pk"))
    )
    for domain, count in empty:
        states.setdefault(domain, Counter())["empty"] += count
    return states


def gate_card(team_ids: Sequence[int]) -> GateCard | None:
    """Return the newest gate with its worst domains, or None; at most three queries."""
    gate = (
        Gate.objects.filter(team__in=team_ids)
        .select_related("candidate", "baseline")
        .defer(*GATE_HEAVY)
        .order_by("-id")
        .first()
    )
    if gate is None:
        return None
    card = GateCard(gate)
    if gate.verdict:
        rows = GateDomain.objects.filter(gate=gate)
        card.counts = dict(
            rows.values_list("verdict").annotate(count=Count("pk")).order_by("verdict")
        )
        card.regressed = list(
            rows.filter(verdict="block")
            .select_related("domain")
            .order_by("delta")[:SHOWN_REGRESSIONS]
        )
    return card


@dataclass(slots=True)
class VersionRow:
    """A version with what is known of it.

    Attributes:
        version: The row.
        decided: The inspection that decides about it, or the newest that ended.
        running: The one under way.
    """

    version: EnvironmentVersion
    decided: Inspection | None = None
    running: Inspection | None = None

    @property
    def state(self) -> str:
        """The verdict's key, for the tag."""
        return self.version.admission or "not_judged"


@dataclass(slots=True)
class EnvironmentRow:
    """An environment in a list; ``newest`` is None where nothing was uploaded."""

    environment: Environment
    newest: VersionRow | None

    @property
    def state(self) -> str:
        """The verdict's key, for the tag."""
        return self.newest.state if self.newest else "empty"


def version_rows(versions: Iterable[EnvironmentVersion]) -> list[VersionRow]:
    """Return versions with their deciding and running inspections; one query."""
    rows = [VersionRow(version) for version in versions]
    by_version = {row.version.pk: row for row in rows}
    wanted = Inspection.objects.filter(version__in=list(by_version))
    newest = [
        *wanted.filter(status__in=OPEN).order_by("version_id", "-pk").distinct("version_id"),
        *wanted.filter(status=InspectionStatus.FINISHED)
        .order_by("version_id", "-decides", "-pk")
        .distinct("version_id")
        .defer(*HEAVY),
    ]
    for inspection in newest:
        row = by_version[inspection.version_id]
        if inspection.status in OPEN:
            row.running = inspection
        else:
            row.decided = inspection
    return rows


def environment_rows(environments: Sequence[Environment]) -> list[EnvironmentRow]:
    """Return environments with their newest versions and verdicts; three queries."""
    versions = (
        EnvironmentVersion.objects.filter(environment__in=environments)
        .order_by("environment_id", "-pk")
        .distinct("environment_id")
    )
    newest = {row.version.environment_id: row for row in version_rows(versions)}
    return [EnvironmentRow(row, newest.get(row.pk)) for row in environments]


def domain_gates(domain: Domain, most: int = 20) -> list[GateDomain]:
    """Return a domain's results in its newest gates; one query."""
    return list(
        GateDomain.objects.filter(domain=domain)
        .select_related("gate__candidate", "gate__baseline")
        .defer(*(f"gate__{name}" for name in GATE_HEAVY))
        .order_by("-gate_id")[:most]
    )


def inspection_rows(team_ids: Sequence[int]) -> QuerySet[Inspection]:
    """Return inspections for lists, newest first."""
    return (
        Inspection.objects.filter(team__in=team_ids)
        .select_related("version__environment", "domain")
        .defer(*HEAVY)
        .order_by("-id")
    )
