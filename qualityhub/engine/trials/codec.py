"""JSON forms of trials and their results, for the store and for a database row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
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
    """Return the flat form that findings carry and ``reproduce`` reads.

    What was changed around the trial stands beside the rest, each under its own name.
    """
    document = {
        "task": ask.task,
        "probe": ask.probe,
        "hash_seed": ask.variation.hash_seed,
        "seed": ask.variation.seed,
        "repeat": ask.repeat,
        **ask.variation.changes(),
    }
    return {**document, "cold": True} if ask.cold else document


def ask_from_evidence(document: Mapping[str, Any]) -> Ask:
    """Rebuild an ask from a finding's evidence.

    Raises:
        KeyError: A field is missing.
        TypeError: It is no object of named fields.
        msgspec.ValidationError: A field has the wrong type.
    """
    if not isinstance(document, Mapping):
        raise TypeError("an ask is an object of named fields")
    names = {item.name for item in fields(Variation)}
    changes = {name: value for name, value in document.items() if name in names}
    return Ask(
        task=msgspec.convert(document["task"], str),
        probe=msgspec.convert(document["probe"], str),
        variation=msgspec.convert(changes, Variation),
        repeat=msgspec.convert(document["repeat"], int),
        cold=msgspec.convert(document.get("cold", False), bool),
    )
