"""Compare two sets of result files: the gate without a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qualityhub.engine.gate.decide import decide
from qualityhub.engine.gate.rollups import RollupTable
from qualityhub.engine.results.files import read_rows
from qualityhub.engine.results.identity import SeenRows

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from qualityhub.engine.gate.decision import Decision
    from qualityhub.engine.gate.policy import GatePolicy

DEFAULT_DOMAIN = "default"


def compare_files(
    candidate: Sequence[Path], baseline: Sequence[Path], policy: GatePolicy
) -> Decision:
    """Return the decision on a candidate's result files against a baseline's.

    Args:
        candidate: Result files of the candidate, together one run.
        baseline: Result files of the baseline, together one run.
        policy: What counts as a regression.

    Raises:
        InvalidInputError: A file or row that cannot be used, as ``file:line``.
    """
    notes: list[str] = []
    before = _read("baseline", baseline, policy, notes)
    after = _read("candidate", candidate, policy, notes)
    return decide(policy, before.domains(), after.domains(), notes=notes)


def _read(label: str, paths: Sequence[Path], policy: GatePolicy, notes: list[str]) -> RollupTable:
    seen = SeenRows(DEFAULT_DOMAIN)
    table = RollupTable(DEFAULT_DOMAIN, policy.cluster_attribute)
    unnamed = 0
    for path in paths:
        for block in read_rows(path):
            rows = seen.new(block)
            unnamed += sum(row.domain is None for row in rows)
            table.add_all(rows)
    if unnamed:
        notes.append(
            f"{unnamed} rows of the {label} name no domain and count as {DEFAULT_DOMAIN!r}."
        )
    if seen.duplicates:
        notes.append(f"{seen.duplicates} rows of the {label} were given twice and count once.")
    if seen.conflicts:
        notes.append(
            f"{seen.conflicts} rows of the {label} contradict an earlier row of the same attempt "
            f"and were left out: {', '.join(seen.examples)}."
        )
    return table
