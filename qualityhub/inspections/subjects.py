"""What an inspection judges, put together again from rows and files for the engine."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from qualityhub.engine.digest import digest_json
from qualityhub.engine.environments.model import Environment
from qualityhub.engine.inspect import host_facts
from qualityhub.engine.policy import admission_policy_from
from qualityhub.engine.report import InspectionReport
from qualityhub.engine.rules import advance as engine
from qualityhub.engine.rules.catalogue import CATALOGUE
from qualityhub.engine.rules.verdict import Waiver
from qualityhub.engine.trials.runner import program_digest
from qualityhub.engine.trials.worlds import world_from_json
from qualityhub.inspections.results import observed
from qualityhub.inspections.waivers import waivers_in_force
from qualityhub.registry.packages import version_environment

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qualityhub.engine.trials.model import World
    from qualityhub.inspections.models import Inspection
    from qualityhub.inspections.results import Observed


def subject_of(
    inspection: Inspection,
    environment: Environment | None = None,
    worlds: Mapping[str, World] | None = None,
) -> engine.Inspection:
    """Return what the engine judges, from the stored rows of a prepared inspection.

    Args:
        inspection: Its worlds and inputs are stored.
        environment: The parsed package where the caller has it already.
        worlds: The worlds where the caller has them already.
    """
    inputs = inspection.inputs
    return engine.Inspection(
        environment=environment or version_environment(inspection.version),
        worlds=worlds or worlds_of(inspection),
        policy=admission_policy_from(inspection.policy),
        source=inputs["source"],
        waivers=tuple(Waiver(**item) for item in inputs["waivers"]),
        today=inputs["today"],
        host=inputs["host"],
    )


def worlds_of(inspection: Inspection) -> dict[str, World]:
    """Return the stored worlds by task id; paths on a host are not among what is stored."""
    return {task: world_from_json(document) for task, document in inspection.worlds.items()}


def inputs_now(inspection: Inspection, today: str) -> dict[str, Any]:
    """Return what a verdict is made from beside trials, as of now."""
    return {
        "source": inspection.version.source,
        "today": today,
        "host": host_facts(),
        "waivers": [
            {
                "code": waiver.code,
                "task": waiver.task or None,
                "reason": waiver.reason,
                "until": waiver.until.isoformat(),
            }
            for waiver in waivers_in_force(inspection.version.environment, today)
        ],
        "seconds": 0.0,
    }


def tally_of(state: Observed, seconds: float) -> engine.Tally:
    """Return the counts that a report prints."""
    return engine.Tally(state.run, state.cached, seconds, state.seconds)


def derive_again(inspection: Inspection) -> InspectionReport:
    """Return the report that the stored rows of a finished inspection say, by the engine of today.

    Raises:
        ValueError: Rows are missing or damaged.
    """
    state = observed(inspection)
    subject = subject_of(inspection)
    step = engine.advance(subject, state.seen, tally_of(state, inspection.inputs["seconds"]))
    if step.report is None:
        raise ValueError(f"{len(step.asks)} asks of {inspection.public_id} have no answer stored.")
    return step.report


@cache
def facts_now() -> str:
    """Return the digest of what voids a verdict when it changes: rules, programs, class of host."""
    host = host_facts()
    return digest_json(
        "facts",
        {
            "rules": {code: rule.version for code, rule in CATALOGUE.items()},
            "programs": program_digest(),
            "host": [host["system"], host["arch"]],
        },
    )
