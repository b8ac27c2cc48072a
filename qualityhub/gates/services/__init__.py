"""Writes of this room."""

from __future__ import annotations

from qualityhub.gates.services.baselines import baseline_set
from qualityhub.gates.services.gates import gate_decide, gate_record, gate_start
from qualityhub.gates.services.ingest import rollouts_ingest, rows_from
from qualityhub.gates.services.intake import Conflict, IngestResult
from qualityhub.gates.services.policies import policy_create, policy_parse, policy_retire
from qualityhub.gates.services.runs import checkpoint_create, eval_run_create, eval_run_seal
from qualityhub.gates.services.verify import (
    RollupDifference,
    rollups_verify,
    rollups_verify_all,
)

__all__ = [
    "Conflict",
    "IngestResult",
    "RollupDifference",
    "baseline_set",
    "checkpoint_create",
    "eval_run_create",
    "eval_run_seal",
    "gate_decide",
    "gate_record",
    "gate_start",
    "policy_create",
    "policy_parse",
    "policy_retire",
    "rollouts_ingest",
    "rollups_verify",
    "rollups_verify_all",
    "rows_from",
]
