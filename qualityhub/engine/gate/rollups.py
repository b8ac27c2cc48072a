"""Rollups: all that the gate needs of the rollouts of one task, mergeable in any order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from qualityhub.engine.results.rows import RolloutRow, Validity

MIXED_DIGEST = "mixed"
"""Stands for a task that was run under more than one digest: it cannot be paired."""


@dataclass(slots=True)
class TaskRollup:
    """Sums over the rollouts of one task with one validity, in one run and domain.

    Every metric has its own count because a source may report it for some rollouts only.

    Attributes:
        task: Task id.
        validity: As in the row contract.
        task_digest: Digest of the task, empty where the source gave none, :data:`MIXED_DIGEST`
            where it gave several.
        n: Rollouts.
        passes: Rollouts that count as solved.
        sum: Sum of rewards.
        sumsq: Sum of squared rewards.
        input_tokens: Sum over the ``input_tokens_n`` rollouts that reported it.
        output_tokens: Likewise.
        cost: Likewise, in the currency of the run.
        latency_ms: Likewise, milliseconds.
        turns: Likewise.
        cluster: What the task shares with others (repository, passage), empty where unknown.
        trace_ref: Trace of one rollout that failed (the first by name), empty where none is known.
    """

    task: str
    validity: Validity = "valid"
    task_digest: str = ""
    n: int = 0
    passes: int = 0
    sum: float = 0.0
    sumsq: float = 0.0
    input_tokens: int = 0
    input_tokens_n: int = 0
    output_tokens: int = 0
    output_tokens_n: int = 0
    cost: float = 0.0
    cost_n: int = 0
    latency_ms: float = 0.0
    latency_ms_n: int = 0
    turns: int = 0
    turns_n: int = 0
    cluster: str = ""
    trace_ref: str = ""

    def add(self, row: RolloutRow) -> None:
        """Count one rollout; the caller has chosen the rollup by task and validity."""
        # Not through the row's properties: this runs once per rollout, millions of times.
        reward, passed = row.reward, row.passed
        value = reward if reward is not None else float(passed or False)
        self.n += 1
        self.sum += value
        self.sumsq += value * value
        if value >= 1.0 if passed is None else passed:
            self.passes += 1
        elif row.trace_ref and not (self.trace_ref and self.trace_ref <= row.trace_ref):
            self.trace_ref = row.trace_ref
        if row.task_digest and row.task_digest != self.task_digest:
            self._see_digest(row.task_digest)
        if row.input_tokens is not None:
            self.input_tokens += row.input_tokens
            self.input_tokens_n += 1
        if row.output_tokens is not None:
            self.output_tokens += row.output_tokens
            self.output_tokens_n += 1
        if row.cost is not None:
            self.cost += row.cost
            self.cost_n += 1
        if row.latency_ms is not None:
            self.latency_ms += row.latency_ms
            self.latency_ms_n += 1
        if row.turns is not None:
            self.turns += row.turns
            self.turns_n += 1

    def merge(self, other: TaskRollup) -> None:
        """Count all rollouts of another rollup of the same task and validity."""
        if (self.task, self.validity) != (other.task, other.validity):
            raise ValueError("Rollups of different tasks or validities do not merge.")
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        if other.task_digest:
            self._see_digest(other.task_digest)
        if other.cluster and not (self.cluster and self.cluster <= other.cluster):
            self.cluster = other.cluster
        if other.trace_ref and not (self.trace_ref and self.trace_ref <= other.trace_ref):
            self.trace_ref = other.trace_ref

    def _see_digest(self, digest: str) -> None:
        if not self.task_digest:
            self.task_digest = digest
        elif self.task_digest != digest:
            self.task_digest = MIXED_DIGEST


_SUMS = (
    "n",
    "passes",
    "sum",
    "sumsq",
    "input_tokens",
    "input_tokens_n",
    "output_tokens",
    "output_tokens_n",
    "cost",
    "cost_n",
    "latency_ms",
    "latency_ms_n",
    "turns",
    "turns_n",
)

Rollups = Mapping[str, Sequence[TaskRollup]]
"""Rollups of one run by domain; at most one per task and validity."""


class RollupTable:
    """Collects the rollups of one run, row by row or from parts.

    Args:
        default_domain: Domain of rows that name none.
        cluster_attribute: Name of the row attribute that names a task's cluster, or empty.
    """

    def __init__(self, default_domain: str = "default", cluster_attribute: str = "") -> None:
        self._default = default_domain
        self._cluster = cluster_attribute
        self._domains: dict[str, dict[tuple[str, str], TaskRollup]] = {}

    def add(self, row: RolloutRow) -> None:
        """Count one rollout."""
        domain = row.domain or self._default
        rollup = self._rollup(domain, row.task, row.validity)
        rollup.add(row)
        if self._cluster and row.attributes and self._cluster in row.attributes:
            cluster = str(row.attributes[self._cluster])
            if not (rollup.cluster and rollup.cluster <= cluster):
                rollup.cluster = cluster

    def add_all(self, rows: Iterable[RolloutRow]) -> None:
        """Count many rollouts."""
        for row in rows:
            self.add(row)

    def merge(self, rollups: Rollups) -> None:
        """Count the rollouts of another part of the same run."""
        for domain, parts in rollups.items():
            for part in parts:
                self._rollup(domain, part.task, part.validity).merge(part)

    def domains(self) -> dict[str, list[TaskRollup]]:
        """Return what :func:`~qualityhub.engine.gate.decide.decide` reads."""
        return {name: list(rollups.values()) for name, rollups in self._domains.items()}

    def _rollup(self, domain: str, task: str, validity: Validity) -> TaskRollup:
        rollups = self._domains.get(domain)
        if rollups is None:
            rollups = self._domains[domain] = {}
        rollup = rollups.get((task, validity))
        if rollup is None:
            rollup = rollups[task, validity] = TaskRollup(task, validity)
        return rollup


def merged(*parts: Rollups) -> dict[str, list[TaskRollup]]:
    """Return the rollups of all parts together; the parts stay as they are."""
    table = RollupTable()
    for part in parts:
        table.merge(part)
    return table.domains()
