"""Writes of this room."""

from __future__ import annotations

from qualityhub.gates.services.ingest import Conflict, IngestResult, rollouts_ingest, rows_from
from qualityhub.gates.services.runs import checkpoint_create, eval_run_create, eval_run_seal
from qualityhub.gates.services.verify import RollupDifference, rollups_verify

__all__ = [
    "Conflict",
    "IngestResult",
    "RollupDifference",
    "checkpoint_create",
    "eval_run_create",
    "eval_run_seal",
    "rollouts_ingest",
    "rollups_verify",
    "rows_from",
]
