"""Storing rollouts: one request, one transaction, all or nothing.

Rows flow from the request through the decoder into a temporary table by COPY and from there into
the rollouts and their rollups in one statement. Three rules keep it right under load:

* Tasks are interned once per request, in sorted order, so that two requests that bring the same
  new tasks wait for each other instead of deadlocking.
* The run's row is locked from then to the commit: rows of one run are applied one request after
  the other (parsing is parallel), sealing waits, and counters are exact.
* What repeats inside one request is settled before the database sees it; what repeats what is
  stored is settled by the primary key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import connection, transaction

from qualityhub.engine.errors import ConflictError, InvalidInputError, NotFoundError
from qualityhub.engine.results.rows import decode_block
from qualityhub.gates.choices import RunStatus
from qualityhub.gates.models import EvalRun
from qualityhub.gates.services.intake import SHOWN_CONFLICTS, Conflict, IngestResult, Intake

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from qualityhub.gates.stream import RowStream

_ROWS = """
CREATE TEMPORARY TABLE IF NOT EXISTS qh_rows_1 (
    local integer, attempt integer, line bigint, content bigint, validity smallint,
    passed boolean, reward double precision, latency_ms double precision,
    input_tokens bigint, output_tokens bigint, cost double precision, turns bigint,
    context_tokens bigint, trace_ref text, attributes jsonb
) ON COMMIT DELETE ROWS
"""
_TASKS = """
CREATE TEMPORARY TABLE IF NOT EXISTS qh_tasks_1 (
    local integer, domain_id bigint, task text, digest text, key bigint
) ON COMMIT DELETE ROWS
"""
_INTERN = """
INSERT INTO gates_taskkey (domain_id, task, digest)
SELECT domain_id, task, digest FROM qh_tasks_1
ORDER BY domain_id, task COLLATE "C", digest COLLATE "C"
ON CONFLICT DO NOTHING
"""
_RESOLVE = """
UPDATE qh_tasks_1 t SET key = k.id FROM gates_taskkey k
WHERE k.domain_id = t.domain_id AND k.task = t.task AND k.digest = t.digest
"""
# A task keeps one digest within a run: rows that name another are conflicts, whatever they say.
_OTHER_DIGEST = """
UPDATE qh_tasks_1 t SET key = NULL
WHERE EXISTS (
    SELECT 1 FROM gates_taskkey k JOIN gates_rollup r ON r.task_key_id = k.id AND r.run_id = %(run)s
    WHERE k.domain_id = t.domain_id AND k.task = t.task AND k.digest <> t.digest
)
"""
_STORE = """
WITH stored AS (
    INSERT INTO gates_rollout (
        run_id, task_key_id, attempt, content, validity, passed, reward, latency_ms,
        input_tokens, output_tokens, cost, turns, context_tokens, trace_ref, attributes)
    SELECT %(run)s, t.key, r.attempt, r.content, r.validity, r.passed, r.reward, r.latency_ms,
        r.input_tokens, r.output_tokens, r.cost, r.turns, r.context_tokens, r.trace_ref,
        r.attributes
    FROM qh_rows_1 r JOIN qh_tasks_1 t USING (local) WHERE t.key IS NOT NULL
    ON CONFLICT DO NOTHING
    RETURNING task_key_id, validity, passed, reward, latency_ms, input_tokens, output_tokens,
        cost, turns, trace_ref
), summed AS (
    INSERT INTO gates_rollup AS u (
        run_id, task_key_id, validity, n, passes, reward_sum, reward_sumsq,
        input_tokens, input_tokens_n, output_tokens, output_tokens_n, cost, cost_n,
        latency_ms, latency_ms_n, turns, turns_n, trace_ref)
    SELECT %(run)s, {columns}
    FROM stored GROUP BY task_key_id, validity
    ON CONFLICT (run_id, task_key_id, validity) DO UPDATE SET
        n = u.n + excluded.n, passes = u.passes + excluded.passes,
        reward_sum = u.reward_sum + excluded.reward_sum,
        reward_sumsq = u.reward_sumsq + excluded.reward_sumsq,
        input_tokens = u.input_tokens + excluded.input_tokens,
        input_tokens_n = u.input_tokens_n + excluded.input_tokens_n,
        output_tokens = u.output_tokens + excluded.output_tokens,
        output_tokens_n = u.output_tokens_n + excluded.output_tokens_n,
        cost = u.cost + excluded.cost, cost_n = u.cost_n + excluded.cost_n,
        latency_ms = u.latency_ms + excluded.latency_ms,
        latency_ms_n = u.latency_ms_n + excluded.latency_ms_n,
        turns = u.turns + excluded.turns, turns_n = u.turns_n + excluded.turns_n,
        trace_ref = LEAST(u.trace_ref COLLATE "C", excluded.trace_ref COLLATE "C")
)
SELECT count(*) FROM stored
"""
SUMS = """task_key_id, validity, count(*) AS n, count(*) FILTER (WHERE passed) AS passes,
    sum(reward) AS reward_sum, sum(reward * reward) AS reward_sumsq,
    coalesce(sum(input_tokens), 0)::float8 AS input_tokens, count(input_tokens) AS input_tokens_n,
    coalesce(sum(output_tokens), 0)::float8 AS output_tokens,
    count(output_tokens) AS output_tokens_n,
    coalesce(sum(cost), 0) AS cost, count(cost) AS cost_n,
    coalesce(sum(latency_ms), 0) AS latency_ms, count(latency_ms) AS latency_ms_n,
    coalesce(sum(turns), 0)::float8 AS turns, count(turns) AS turns_n,
    min(trace_ref COLLATE "C") FILTER (WHERE NOT passed) AS trace_ref"""
_CONFLICTS = """
FROM qh_rows_1 r JOIN qh_tasks_1 t USING (local)
LEFT JOIN gates_rollout o
    ON o.run_id = %(run)s AND o.task_key_id = t.key AND o.attempt = r.attempt
WHERE t.key IS NULL OR o.content <> r.content
"""


def rollouts_ingest(
    *,
    run: EvalRun,
    stream: RowStream,
    domains: Mapping[str, int],
    domain_create: Callable[[str], int] | None = None,
) -> IngestResult:
    """Store the rows of one request body, whole or not at all.

    Args:
        run: The run they belong to; must be open.
        stream: The request body.
        domains: Ids of the team's domains by slug, which is what rows name.
        domain_create: Makes a missing domain and returns its id; None refuses unknown names.

    Raises:
        ConflictError: ``runs.sealed``.
        RowError: The first row that cannot be used, with its line.
        InvalidInputError: ``results.empty`` and what :class:`RowStream` raises.
        LimitExceededError: Too many bytes.
    """
    with transaction.atomic():
        _require_open(run.status)
        with connection.cursor() as cursor:
            cursor.execute(_ROWS)
            cursor.execute(_TASKS)
            # Within an outer transaction (a test's) an earlier request's rows are still there.
            cursor.execute("DELETE FROM qh_rows_1; DELETE FROM qh_tasks_1")
            # A request of 64 MiB is joined and summed in memory, not in temporary files.
            cursor.execute("SET LOCAL work_mem = '64MB'")
            default = run.domain.slug if run.domain is not None else None
            intake = Intake(dict(domains), default, domain_create)
            with cursor.copy("COPY qh_rows_1 FROM STDIN") as copy:
                for block, first_line in stream.blocks():
                    rows = decode_block(block, first_line)
                    copy.write(intake.lines(rows, block, first_line))
            result = intake.result
            if not result.received:
                raise InvalidInputError(
                    "results.empty",
                    "The request holds no row.",
                    "Send one JSON object per line.",
                )
            intake.create_domains()
            with cursor.copy("COPY qh_tasks_1 (local, domain_id, task, digest) FROM STDIN") as copy:
                copy.write(intake.task_lines())
            _lock_open(run)
            _apply(cursor, run, intake)
    return result


def _apply(cursor: Any, run: EvalRun, intake: Intake) -> None:
    result = intake.result
    run_id = {"run": run.pk}
    cursor.execute(_INTERN)
    cursor.execute(_RESOLVE)
    if run.rows:
        cursor.execute(_OTHER_DIGEST, run_id)
    cursor.execute(_STORE.format(columns=SUMS), run_id)
    result.inserted = cursor.fetchone()[0]
    left = result.received - result.inserted - result.duplicates - result.conflicts_total
    if left:
        cursor.execute(f"SELECT count(*) {_CONFLICTS}", run_id)
        against_stored = cursor.fetchone()[0]
        if against_stored:
            cursor.execute(
                "SELECT t.domain_id, t.task, r.attempt, r.line, t.key IS NULL "
                f"{_CONFLICTS} ORDER BY r.line LIMIT {SHOWN_CONFLICTS}",
                run_id,
            )
            names = intake.domain_names()
            result.conflicts += [
                Conflict(names[domain], task, attempt, line, "task_digest" if digest else "content")
                for domain, task, attempt, line, digest in cursor.fetchall()
            ]
        result.conflicts_total += against_stored
        result.duplicates += left - against_stored
    result.conflicts = sorted(result.conflicts, key=lambda item: item.line)[:SHOWN_CONFLICTS]
    run.rows += result.inserted
    run.duplicates += result.duplicates
    run.conflicts += result.conflicts_total
    run.save(update_fields=("rows", "duplicates", "conflicts"))


def _require_open(status: str) -> None:
    if status != RunStatus.OPEN:
        raise ConflictError(
            "runs.sealed",
            "The run is sealed; it takes no more rows.",
            "A regrade or a repetition is a new run.",
        )


def _lock_open(run: EvalRun) -> None:
    """Lock the run to the end of the transaction and bring its state up to date."""
    locked = EvalRun.objects.select_for_update(no_key=True).filter(pk=run.pk).first()
    if locked is None:
        raise NotFoundError("runs.not_found", "The run no longer exists.")
    _require_open(locked.status)
    run.rows, run.duplicates, run.conflicts = locked.rows, locked.duplicates, locked.conflicts


def rows_from(blocks: Iterable[bytes]) -> Callable[[int], bytes]:
    """Return a ``read`` over pieces of bytes, for rows that come from our own process."""
    iterator = iter(blocks)
    return lambda _size: next(iterator, b"")
