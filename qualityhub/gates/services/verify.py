"""Proof that the stored sums are what the stored rows add up to."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.db import connection, transaction

from qualityhub.gates.models import EvalRun
from qualityhub.gates.services.ingest import SUMS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

logger = logging.getLogger(__name__)
# Sums of the same numbers in another order differ in their last digits.
RELATIVE = 1e-9
COLUMNS = (
    "n",
    "passes",
    "reward_sum",
    "reward_sumsq",
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
    "trace_ref",
)
EXACT = frozenset(name for name in COLUMNS if name in {"n", "passes"} or name.endswith("_n"))

_COMPARE = f"""
WITH again AS (SELECT {SUMS} FROM gates_rollout WHERE run_id = %(run)s GROUP BY 1, 2),
     kept AS (SELECT * FROM gates_rollup WHERE run_id = %(run)s)
SELECT coalesce(a.task_key_id, k.task_key_id), coalesce(a.validity, k.validity), t.task,
    {", ".join(f"k.{name}, a.{name}" for name in COLUMNS)}
FROM again a FULL JOIN kept k ON k.task_key_id = a.task_key_id AND k.validity = a.validity
LEFT JOIN gates_taskkey t ON t.id = coalesce(a.task_key_id, k.task_key_id)
ORDER BY 1, 2
"""  # noqa: S608 - our own constants.


@dataclass(frozen=True, slots=True)
class RollupDifference:
    """One stored value that its rows do not add up to.

    Attributes:
        task: Task id, empty for the run as a whole.
        validity: The rollup's validity, as stored.
        column: Which value.
        stored: What is kept; None where there is no rollup.
        recomputed: What the rows say; None where there are no rows.
    """

    task: str
    validity: int
    column: str
    stored: float | str | None
    recomputed: float | str | None


def rollups_verify(run: EvalRun) -> list[RollupDifference]:
    """Return every stored sum of a run that differs from its recomputation; empty when all is well.

    Counts and trace names must be equal, sums of measurements within 1e-9 of their size.
    """
    found: list[RollupDifference] = []
    total = 0
    with transaction.atomic(), connection.cursor() as cursor:
        # Rows that are being stored are waited for: sums and rows are read as of one moment.
        kept = EvalRun.objects.select_for_update(no_key=True).get(pk=run.pk)
        cursor.execute(_COMPARE, {"run": run.pk})
        for _key, validity, task, *values in cursor.fetchall():
            stored = dict(zip(COLUMNS, values[::2], strict=True))
            again = dict(zip(COLUMNS, values[1::2], strict=True))
            total += again["n"] or 0
            found += [
                RollupDifference(task or "", validity, column, stored[column], again[column])
                for column in COLUMNS
                if not _same(column, stored, again)
            ]
    if kept.rows != total:
        found.append(RollupDifference("", 0, "rows", kept.rows, total))
    return found


def _same(column: str, stored: Mapping[str, Any], again: Mapping[str, Any]) -> bool:
    one, other = stored[column], again[column]
    if one is None or other is None or column in EXACT or isinstance(one, str):
        return bool(one == other)
    # Rewards may be negative: what cancels out is judged by the size of what was added.
    size = math.sqrt(again["n"] * again["reward_sumsq"]) if column == "reward_sum" else 1.0
    return math.isclose(one, other, rel_tol=RELATIVE, abs_tol=RELATIVE * max(1.0, size))


def rollups_verify_all(run_ids: Sequence[int]) -> int:
    """Verify runs by primary key; returns how many values differ, each run of them logged."""
    wrong = 0
    for run in EvalRun.objects.filter(pk__in=run_ids).order_by("pk"):
        differences = rollups_verify(run)
        if differences:
            wrong += len(differences)
            logger.error(
                "rollups_differ",
                extra={"fields": {"run": run.public_id, "first": str(differences[0])}},
            )
    return wrong
