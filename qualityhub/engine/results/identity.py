"""A row's identity within one run: the same again changes nothing, other content is a conflict."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from qualityhub.engine.results.rows import RolloutRow

_SHOWN = 5


class SeenRows:
    """Remembers the rows of one run; the first row of an identity wins.

    Attributes:
        accepted: Rows that were new.
        duplicates: Rows that said the same again.
        conflicts: Rows that said something else about an attempt already seen.
        examples: The first conflicts, as ``domain/task#attempt``.
    """

    __slots__ = ("_default", "_seen", "accepted", "conflicts", "duplicates", "examples")

    def __init__(self, default_domain: str = "default") -> None:
        self.accepted = 0
        self.duplicates = 0
        self.conflicts = 0
        self.examples: list[str] = []
        self._default = default_domain
        # Only a hash of each row is kept: 64 bits, salted per process, so that a forged
        # collision cannot be prepared.
        self._seen: dict[tuple[str, str], dict[int, int]] = {}

    def new(self, rows: Iterable[RolloutRow]) -> list[RolloutRow]:
        """Return the rows not seen before, counting the others."""
        fresh: list[RolloutRow] = []
        for row in rows:
            domain = row.domain or self._default
            attempts = self._seen.get((domain, row.task))
            if attempts is None:
                attempts = self._seen[domain, row.task] = {}
            content = _content(row)
            before = attempts.setdefault(row.attempt, -1)
            if before == -1:
                attempts[row.attempt] = content
                fresh.append(row)
            elif before == content:
                self.duplicates += 1
            else:
                self.conflicts += 1
                if len(self.examples) < _SHOWN:
                    self.examples.append(f"{domain}/{row.task}#{row.attempt}")
        self.accepted += len(fresh)
        return fresh


def _content(row: RolloutRow) -> int:
    attributes = (
        msgspec.json.encode(row.attributes, order="deterministic") if row.attributes else b""
    )
    # hash() never returns -1, which marks an attempt not seen yet.
    return hash(
        (
            row.reward,
            row.passed,
            row.validity,
            row.task_digest,
            row.latency_ms,
            row.input_tokens,
            row.output_tokens,
            row.cost,
            row.turns,
            row.context_tokens,
            row.trace_ref,
            attributes,
        )
    )
