"""From decoded rows to COPY text, and what repeats inside one request."""

from __future__ import annotations

from dataclasses import dataclass, field
from difflib import get_close_matches
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec

from qualityhub.engine.errors import InvalidInputError
from qualityhub.engine.results.rows import RowError
from qualityhub.gates.choices import Validity

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from qualityhub.engine.results.rows import RolloutRow

SHOWN_CONFLICTS = 20
# PostgreSQL refuses index entries beyond 2,704 bytes.
KEY_BYTES = 2000
VALIDITY: dict[str, int] = {label: int(value) for value, label in Validity.choices}
NULL = "\\N"

_ATTRIBUTES = msgspec.json.Encoder(order="deterministic")
_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"})


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


class Intake:
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
