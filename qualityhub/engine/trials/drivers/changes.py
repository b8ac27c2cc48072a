"""What of a variation took hold, as the in-sandbox program says it: facts of an observation.

A change that is in neither list was never spoken of: the program did not live to say it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from qualityhub.engine.sandbox.port import Completed
from qualityhub.engine.trials.model import Observation, Variation
from qualityhub.engine.trials.variations import manners

REVERSED = "/qh/out/reversed"
_WHY = 160
_ESCAPES = {
    "escaped": "the program {} runs without it",
    "static": "its scripts call {}, which is linked statically",
    "cleared": "its scripts start programs without it ({})",
}
_SEEDS = frozenset({"hash_seed", "seed"})


def changed_fields(variation: Variation) -> frozenset[str]:
    """Return the fields whose effect is verified: seeds are plain inputs."""
    return frozenset(variation.changes()) - _SEEDS


def with_changes(
    seen: Observation, variation: Variation, said: Mapping[str, Any], escaped: object = None
) -> Observation:
    """Return an observation that says which changes took hold.

    Args:
        seen: As observed.
        variation: What was to be changed.
        said: ``applied`` (names), ``not_applied`` (why by name) and ``file_times``.
        escaped: How something in the trial got around the shifted clock.
    """
    fields = changed_fields(variation)
    if not fields:
        return seen
    given = said.get("not_applied")
    refused = {
        name: _told(why)
        for name, why in (given.items() if isinstance(given, dict) else ())
        if name in fields
    }
    listed = said.get("applied")
    applied = {
        name for name in (listed if isinstance(listed, list) else ()) if isinstance(name, str)
    }
    if "clock" in fields and isinstance(escaped, list) and escaped:
        refused["clock"] = _told("; ".join(str(why) for why in escaped[:3]))
    facts = {**seen.facts, "applied": sorted((applied & fields) - refused.keys())}
    if refused:
        facts["not_applied"] = refused
    if said.get("file_times") is True:
        facts["file_times"] = True
    return replace(seen, facts=facts)


def refuse_changes(seen: Observation, refused: Mapping[str, str]) -> Observation:
    """Return an observation with what this host could not change in the first place."""
    if not refused:
        return seen
    known = seen.facts.get("not_applied", {})
    applied = [name for name in seen.facts.get("applied", []) if name not in refused]
    facts = {**seen.facts, "applied": applied, "not_applied": {**known, **refused}}
    return replace(seen, facts=facts)


def task_changes(variation: Variation, completed: Completed) -> dict[str, Any]:
    """Return what the task program printed of its world, as :func:`with_changes` reads it."""
    seen: dict[str, str] = {}
    escaped = []
    for line in completed.stdout.decode("utf-8", "replace").splitlines():
        name, _, value = line.partition(" ")
        if name in _ESCAPES:
            escaped.append(_ESCAPES[name].format(value))
        else:
            seen.setdefault(name, value.strip())
    applied = []
    refused = {}
    for name in changed_fields(variation):
        why = _task_change(name, variation, seen, completed)
        if why:
            refused[name] = why
        else:
            applied.append(name)
    return {
        "applied": applied,
        "not_applied": refused,
        "file_times": "file-times" in seen,
        "escaped": escaped,
    }


def _task_change(  # noqa: PLR0911 - one arm per field
    name: str, variation: Variation, seen: Mapping[str, str], completed: Completed
) -> str:
    said = seen.get(name, "")
    wanted = getattr(variation, name)
    match name:
        case "clock":
            if "clock-of-python" in seen:
                return "the image's Python does not see it"
            return "" if said else "the image's own programs do not see it"
        case "timezone":
            known = said not in {"", "+0000"}
            return "" if known else f"the image does not know the time zone {wanted}"
        case "locale":
            return "" if said == wanted else f"the image has no locale {wanted}"
        case "umask":
            return "" if said.zfill(4) == f"{wanted:04o}" else "the mask is another"
        case "cpus":
            return "" if _count(said.rpartition(":")[2]) == wanted else "it may use others"
        case "hostname" | "user" | "noise":
            return "" if said == str(wanted) else "the image's own programs do not see it"
        case "load":
            return ""
        case "manner" if manners(variation) == ("reversed",):
            marked = REVERSED in completed.collected
            return "" if marked else "no pytest of the verifier collected tests by our plugin"
    return "it does not apply to tasks with an image"


def _count(ranges: str) -> int:
    """Return how many CPUs a list such as ``0-3,5`` names."""
    total = 0
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        if first.isdigit() and (last.isdigit() or not last):
            total += int(last or first) - int(first) + 1
    return total


def _told(why: object) -> str:
    """Return foreign text in the form that a message and a database take."""
    text = str(why).encode("utf-8", "backslashreplace").decode()
    return "".join(sign if sign.isprintable() else "?" for sign in text)[:_WHY]
