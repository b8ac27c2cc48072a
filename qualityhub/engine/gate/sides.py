"""Columns of one side of one domain, and which tasks of two sides may be compared."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np

from qualityhub.engine.digest import PREFIX
from qualityhub.engine.gate.rollups import MIXED_DIGEST
from qualityhub.engine.gate.statistics import Floats, Means

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qualityhub.engine.gate.policy import ModelFailure
    from qualityhub.engine.gate.rollups import TaskRollup

METRICS = ("input_tokens", "output_tokens", "cost", "latency_ms", "turns")

_NUMBERS = ("n", "passes", "sum", "sumsq", *(part for m in METRICS for part in (m, f"{m}_n")))
_read_numbers = attrgetter(*_NUMBERS)
_read_names = attrgetter("task", "validity", "task_digest", "cluster", "trace_ref")
_FIRST_METRIC = 4


@dataclass(slots=True)
class Side:
    """One side of one domain; every array has one entry per task, tasks sorted by id.

    Attributes:
        tasks: Task ids.
        digests: Digest per task, empty where unknown.
        clusters: Cluster per task, empty where unknown.
        traces: Trace of a failed rollout per task, empty where unknown.
        n: Rollouts that count.
        passes: Of those, solved.
        total: Sum of their rewards, in units of the reward scale.
        squares: Sum of their squared rewards.
        invalid: Rollouts that failed through infrastructure or grader.
        failures: Rollouts that failed through the model.
        rollouts: All rollouts.
        amounts: Metric sums, one row per metric and one column per task.
        amount_counts: Rollouts behind each sum.
        digest: Of the rollups as given, whatever their order.
    """

    tasks: list[str]
    digests: list[str]
    clusters: list[str]
    traces: list[str]
    n: Floats
    passes: Floats
    total: Floats
    squares: Floats
    invalid: Floats
    failures: Floats
    rollouts: Floats
    amounts: Floats
    amount_counts: Floats
    digest: str

    def counted(self, *, invalid_as_failed: bool) -> Floats:
        """Return rollouts per task; an invalid one counts as failed where asked."""
        return self.n + self.invalid if invalid_as_failed else self.n

    def means(self, rows: list[int], *, invalid_as_failed: bool) -> Means:
        """Return the task means of some tasks; each must have a counted rollout."""
        n = self.counted(invalid_as_failed=invalid_as_failed)[rows]
        return Means.from_sums(n, self.total[rows], self.squares[rows])


def read_side(
    rollups: Sequence[TaskRollup], *, model_failure: ModelFailure = "fail", scale: float = 1.0
) -> Side:
    """Return the columns of one side.

    Args:
        rollups: Of one run and domain, in any order.
        model_failure: How model failures count; see ``DomainPolicy``.
        scale: Rewards are divided by it.
    """
    names = list(map(_read_names, rollups))
    order = sorted(range(len(names)), key=names.__getitem__)
    names = [names[row] for row in order]
    numbers = np.array([_read_numbers(rollups[row]) for row in order], dtype=np.float64)
    numbers = np.round(numbers.reshape(len(names), len(_NUMBERS)), 9)
    tasks: list[str] = []
    digests: list[str] = []
    clusters: list[str] = []
    traces: list[str] = []
    positions = np.empty(len(names), dtype=np.intp)
    for row, (task, _, digest, cluster, trace) in enumerate(names):
        if not tasks or tasks[-1] != task:
            tasks.append(task)
            digests.append(digest)
            clusters.append(cluster)
            traces.append(trace)
        else:
            if digest and digest != digests[-1]:
                digests[-1] = MIXED_DIGEST if digests[-1] else digest
            clusters[-1] = clusters[-1] or cluster
            traces[-1] = traces[-1] or trace
        positions[row] = len(tasks) - 1
    validity = [name[1] for name in names]
    failed = np.array([v == "model-failure" for v in validity], dtype=bool)
    valid = np.array([v == "valid" for v in validity], dtype=bool)
    scored = valid | failed if model_failure == "scored" else valid
    present = scored if model_failure == "exclude" else valid | failed
    count = len(tasks)

    def per_task(column: int, chosen: np.ndarray) -> Floats:
        weights = numbers[:, column] * chosen
        return np.bincount(positions, weights=weights, minlength=count).astype(np.float64)

    everything = np.ones(len(names), dtype=bool)
    of_model = valid | failed
    columns = range(_FIRST_METRIC, len(_NUMBERS), 2)
    return Side(
        tasks=tasks,
        digests=digests,
        clusters=clusters,
        traces=traces,
        n=per_task(0, present),
        passes=per_task(1, scored),
        total=per_task(2, scored) / scale,
        squares=per_task(3, scored) / scale**2,
        invalid=per_task(0, ~of_model),
        failures=per_task(0, failed),
        rollouts=per_task(0, everything),
        amounts=np.stack([per_task(column, of_model) for column in columns]),
        amount_counts=np.stack([per_task(column + 1, of_model) for column in columns]),
        digest=_digest(names, numbers),
    )


@dataclass(frozen=True, slots=True)
class Pairing:
    """Which tasks of two sides are compared.

    Attributes:
        baseline: Row of each paired task on the baseline's side.
        candidate: Row of each paired task on the candidate's side.
        excluded: (task, reason) of the tasks that are not.
        union: Tasks of both sides together.
        unnamed: Paired tasks whose digest at least one side does not know.
    """

    baseline: list[int]
    candidate: list[int]
    excluded: list[tuple[str, str]]
    union: int
    unnamed: int

    @property
    def coverage(self) -> float:
        """Share of all tasks that are compared."""
        return len(self.baseline) / self.union if self.union else 0.0


def pair(baseline: Side, candidate: Side, *, invalid_as_failed: bool = False) -> Pairing:
    """Pair the tasks of two sides by id, digest and usable rollouts."""
    theirs = {task: row for row, task in enumerate(candidate.tasks)}
    before_n = baseline.counted(invalid_as_failed=invalid_as_failed).tolist()
    after_n = candidate.counted(invalid_as_failed=invalid_as_failed).tolist()
    rows: list[int] = []
    other_rows: list[int] = []
    excluded: list[tuple[str, str]] = []
    unnamed = 0
    for row, task in enumerate(baseline.tasks):
        other = theirs.pop(task, None)
        if other is None:
            excluded.append((task, "only the baseline has it"))
            continue
        before, after = baseline.digests[row], candidate.digests[other]
        if MIXED_DIGEST in {before, after}:
            excluded.append((task, "ran under more than one task digest within a run"))
        elif before and after and before != after:
            excluded.append((task, "the task changed between the runs (different digests)"))
        elif not before_n[row] or not after_n[other]:
            side = "candidate" if before_n[row] else "baseline"
            excluded.append((task, f"no usable rollout of the {side}"))
        else:
            rows.append(row)
            other_rows.append(other)
            unnamed += not (before and after)
    excluded.extend((task, "only the candidate has it") for task in theirs)
    union = len(baseline.tasks) + len(candidate.tasks) - _common(baseline, candidate)
    return Pairing(rows, other_rows, excluded, union, unnamed)


def _common(baseline: Side, candidate: Side) -> int:
    return len(set(baseline.tasks) & set(candidate.tasks))


def _digest(names: list[tuple[str, str, str, str, str]], numbers: Floats) -> str:
    text = hashlib.sha256(b"rollups\0")
    text.update("\n".join("\0".join(name[:4]) for name in names).encode())
    text.update(numbers.astype("<f8").tobytes())
    return PREFIX + text.hexdigest()
