"""From stored rollups to what the engine's decision reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import connection

from qualityhub.engine.gate.rollups import TaskRollup, merged
from qualityhub.gates.choices import Validity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qualityhub.engine.gate.rollups import Rollups
    from qualityhub.gates.models import EvalRun

_LABELS: dict[int, Any] = {int(value): label for value, label in Validity.choices}

_ROLLUPS = """
SELECT d.slug, k.task, k.digest, u.validity, u.n, u.passes, u.reward_sum, u.reward_sumsq,
    u.input_tokens, u.input_tokens_n, u.output_tokens, u.output_tokens_n, u.cost, u.cost_n,
    u.latency_ms, u.latency_ms_n, u.turns, u.turns_n, coalesce(u.trace_ref, ''), u.task_key_id
FROM gates_rollup u
JOIN gates_taskkey k ON k.id = u.task_key_id
JOIN registry_domain d ON d.id = k.domain_id
WHERE u.run_id = %s ORDER BY u.task_key_id, u.validity
"""
# A cluster is named by the rows themselves, and which attribute names it is the policy's choice:
# it cannot be summed beforehand.
_CLUSTERS = """
SELECT task_key_id, validity, min((attributes ->> %s) COLLATE "C")
FROM gates_rollout WHERE run_id = %s AND attributes ? %s GROUP BY 1, 2
"""


def rollups_of(runs: Sequence[EvalRun], *, cluster_attribute: str = "") -> Rollups:
    """Return the rollups of runs of one checkpoint, by domain slug.

    One query per run, two with clusters.

    Args:
        runs: The runs, whose rollouts count together.
        cluster_attribute: Row attribute that names a task's cluster, or empty.
    """
    loaded = [_load(run, cluster_attribute) for run in runs]
    return loaded[0] if len(loaded) == 1 else merged(*loaded)


def _load(run: EvalRun, cluster_attribute: str) -> Rollups:
    with connection.cursor() as cursor:
        cursor.execute(_ROLLUPS, [run.pk])
        rows = cursor.fetchall()
        clusters: dict[tuple[int, int], str] = {}
        if cluster_attribute:
            cursor.execute(_CLUSTERS, [cluster_attribute, run.pk, cluster_attribute])
            clusters = {(key, validity): name or "" for key, validity, name in cursor.fetchall()}
    domains: dict[str, list[TaskRollup]] = {}
    for row in rows:
        (
            slug, task, task_digest, validity, n, passes, total, squares,
            input_tokens, input_n, output_tokens, output_n, cost, cost_n,
            latency, latency_n, turns, turns_n, trace_ref, key,
        ) = row  # fmt: skip
        domains.setdefault(slug, []).append(
            TaskRollup(
                task,
                _LABELS[validity],
                task_digest,
                n,
                passes,
                total,
                squares,
                int(input_tokens),
                input_n,
                int(output_tokens),
                output_n,
                cost,
                cost_n,
                latency,
                latency_n,
                int(turns),
                turns_n,
                clusters.get((key, validity), ""),
                trace_ref,
            )
        )
    return domains
