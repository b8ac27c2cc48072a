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

from dataclasses import dataclass, field
from difflib import get_close_matches
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec
from django.db import connection, transaction

from qualityhub.engine.errors import ConflictError, InvalidInputError, NotFoundError
from qualityhub.engine.results.rows import RowError, decode_block
from qualityhub.gates.choices import RunStatus, Validity
from qualityhub.gates.models import EvalRun

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from qualityhub.engine.results.rows import RolloutRow
    from qualityhub.gates.stream import RowStream

SHOWN_CONFLICTS = 20
# PostgreSQL refuses index entries beyond 2,704 bytes.
KEY_BYTES = 2000
VALIDITY: dict[str, int] = {label: int(value) for value, label in Validity.choices}

NULL = "\\N"

_ATTRIBUTES = msgspec.json.Encoder(order="deterministic")
_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"})

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


@dataclass(frozen=True, slots=True)
class Conflict:
    """A row that says something else about an attempt already stored; it was not stored.

    Attributes:
        domain: The domain's slug.
        task: Task id.
        attempt: Attempt.
        line: Line of the request, counted from 1.
        reason: ``content`` or ``task_digest``.
    """

    domain: str
    task: str
    attempt: int
    line: int
    reason: str


@dataclass(slots=True)
class IngestResult:
    """What became of the rows of one request.

    Attributes:
        received: Rows in the request.
        inserted: Rows stored now.
        duplicates: Rows that repeat, word for word, what is stored.
        conflicts_total: Rows that contradict what is stored.
        conflicts: The first of them by line, at most 20.
    """

    received: int = 0
    inserted: int = 0
    duplicates: int = 0
    conflicts_total: int = 0
    conflicts: list[Conflict] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Return the API's answer."""
        return {
            "received": self.received,
            "inserted": self.inserted,
            "duplicates": self.duplicates,
            "conflicts": [
                {
                    "domain": item.domain,
                    "task": item.task,
                    "attempt": item.attempt,
                    "line": item.line,
                    "reason": item.reason,
                }
                for item in self.conflicts
            ],
            "conflicts_total": self.conflicts_total,
        }


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
            intake = _Intake(dict(domains), default, domain_create)
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


def _apply(cursor: Any, run: EvalRun, intake: _Intake) -> None:
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


class _Intake:
    """Turns decoded rows into COPY lines and settles what repeats inside the request."""

    def __init__(
        self,
        domains: dict[str, int],
        default_domain: str | None,
        domain_create: Callable[[str], int] | None,
    ) -> None:
        self.result = IngestResult()
        self._domains = domains
        self._default = default_domain
        self._create = domain_create
        self._missing: dict[str, int] = {}
        self._tasks: dict[tuple[str | None, str], tuple[int, str]] = {}
        self._keys: list[tuple[str, str, str]] = []
        self._seen: dict[int, int] = {}

    def lines(self, rows: Sequence[RolloutRow], block: bytes, first_line: int) -> str:
        """Return the COPY text of the rows that are new to this request."""
        numbers: Sequence[int] = range(first_line, first_line + len(rows))
        if len(rows) != block.count(b"\n") + (not block.endswith(b"\n")):
            numbers = [
                number
                for number, text in enumerate(block.split(b"\n"), first_line)
                if text and not text.isspace()
            ]
        result, tasks, seen = self.result, self._tasks, self._seen
        result.received += len(rows)
        out: list[str] = []
        domain: str | None = None
        task = first_digest = ""
        local = 0
        for row, line in zip(rows, numbers, strict=True):
            digest = row.task_digest or ""
            # Attempts at one task mostly arrive together; comparing is cheaper than looking up.
            if row.task != task or row.domain != domain:
                domain, task = row.domain, row.task
                known = tasks.get((domain, task))
                if known is None:
                    known = self._intern(row, digest, line)
                local, first_digest = known
            if digest != first_digest:
                self._conflict(row, line, "task_digest")
                continue
            tail = _tail(row)
            content = int.from_bytes(
                blake2b(tail.encode(), digest_size=8).digest(), "big", signed=True
            )
            key = (local << 32) | row.attempt
            before = seen.get(key)
            if before is not None:
                if before == content:
                    result.duplicates += 1
                else:
                    self._conflict(row, line, "content")
                continue
            seen[key] = content
            out.append(f"{local}\t{row.attempt}\t{line}\t{content}{tail}")
        return "".join(out)

    def create_domains(self) -> None:
        """Make the domains that were missing.

        Raises:
            RowError: The name cannot be a domain's, with the line that brought it.
        """
        for name, line in self._missing.items():
            assert self._create is not None
            try:
                self._domains[name] = self._create(name)
            except InvalidInputError as error:
                raise RowError(error.code, error.message, error.hint, line=line) from error

    def task_lines(self) -> str:
        """Return the COPY text of the request's tasks."""
        return "".join(
            f"{local}\t{self._domains[domain]}\t{task.translate(_ESCAPES)}"
            f"\t{digest.translate(_ESCAPES)}\n"
            for local, (domain, task, digest) in enumerate(self._keys)
        )

    def domain_names(self) -> dict[int, str]:
        """Return the names of the domains by id."""
        return {identifier: name for name, identifier in self._domains.items()}

    def _intern(self, row: RolloutRow, digest: str, line: int) -> tuple[int, str]:
        name = row.domain or self._default
        if name is None:
            raise RowError(
                "results.no_domain",
                "the row names no domain and the run has none of its own.",
                'Add "domain" to the rows, or create the run with a domain.',
                line=line,
            )
        # The same task may be named with and without its domain: one task all the same.
        known = self._tasks.get((name, row.task))
        if known is None:
            if len(row.task.encode()) + len(digest.encode()) > KEY_BYTES:
                raise RowError(
                    "results.too_large",
                    f"task and task_digest together have more than {KEY_BYTES:,} bytes.",
                    line=line,
                )
            known = (len(self._keys), digest)
            self._check_domain(name, line)
            self._keys.append((name, row.task, digest))
            self._tasks[name, row.task] = known
        if row.domain is None:
            self._tasks[None, row.task] = known
        return known

    def _check_domain(self, name: str, line: int) -> None:
        if name in self._domains or name in self._missing:
            return
        if self._create is not None:
            # The connection is busy with COPY; it is made when the rows are in.
            self._missing[name] = line
            return
        near = get_close_matches(name, self._domains, n=1)
        raise RowError(
            "results.unknown_domain",
            f"there is no domain {name[:80]!r}.",
            f"Did you mean {near[0]!r}?"
            if near
            else "Create the domain first, or send the rows with ?create_domains=true.",
            line=line,
        )

    def _conflict(self, row: RolloutRow, line: int, reason: str) -> None:
        self.result.conflicts_total += 1
        if len(self.result.conflicts) < SHOWN_CONFLICTS:
            domain = row.domain or self._default or ""
            self.result.conflicts.append(Conflict(domain, row.task, row.attempt, line, reason))


def _tail(row: RolloutRow) -> str:
    """Return a row's content as COPY text: equal text is equal content, however it was written.

    Written out column by column: this runs for every row that arrives.
    """
    latency, cost, turns = row.latency_ms, row.cost, row.turns
    read, written, context = row.input_tokens, row.output_tokens, row.context_tokens
    trace = row.trace_ref or NULL
    if trace is not NULL and not (trace.isascii() and trace.isprintable() and "\\" not in trace):
        trace = trace.translate(_ESCAPES)
    attributes = NULL
    if row.attributes:
        # JSON text has no raw control characters; only its own backslashes need another.
        attributes = _ATTRIBUTES.encode(row.attributes).decode().replace("\\", "\\\\")
    return (
        f"\t{VALIDITY[row.validity]}\t{'t' if row.solved else 'f'}\t{row.value}"
        f"\t{NULL if latency is None else latency}\t{NULL if read is None else read}"
        f"\t{NULL if written is None else written}\t{NULL if cost is None else cost}"
        f"\t{NULL if turns is None else turns}\t{NULL if context is None else context}"
        f"\t{trace}\t{attributes}\n"
    )


def rows_from(blocks: Iterable[bytes]) -> Callable[[int], bytes]:
    """Return a ``read`` over pieces of bytes, for rows that come from our own process."""
    iterator = iter(blocks)
    return lambda _size: next(iterator, b"")
