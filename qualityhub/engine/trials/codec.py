"""JSON forms of trials and their results, for the store and for a database row."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from qualityhub.engine.trials.model import Ask, Observation, Trial, TrialResult, Variation


def to_json(value: Trial | TrialResult | Ask | Observation) -> dict[str, Any]:
    """Return plain JSON values."""
    return cast("dict[str, Any]", msgspec.to_builtins(value))


def trial_from_json(document: object) -> Trial:
    """Rebuild a trial.

    Raises:
        msgspec.ValidationError: The document is not one.
    """
    return msgspec.convert(document, Trial)


def result_from_json(document: object) -> TrialResult:
    """Rebuild a trial result.

    Raises:
        msgspec.ValidationError: The document is not one.
    """
    return msgspec.convert(document, TrialResult)


def ask_to_evidence(ask: Ask) -> dict[str, Any]:
    """Return the flat form that findings carry and ``reproduce`` reads."""
    return {
        "task": ask.task,
        "probe": ask.probe,
        "hash_seed": ask.variation.hash_seed,
        "seed": ask.variation.seed,
        "repeat": ask.repeat,
    }


def ask_from_evidence(document: dict[str, Any]) -> Ask:
    """Rebuild an ask from a finding's evidence.

    Raises:
        KeyError: A field is missing.
    """
    return Ask(
        task=str(document["task"]),
        probe=str(document["probe"]),
        variation=Variation(int(document["hash_seed"]), int(document["seed"])),
        repeat=int(document["repeat"]),
    )
