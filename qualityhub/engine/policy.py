"""Admission policy: turns facts into severity and a verdict. Data, versioned by its digest."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from qualityhub.engine.digest import digest_json
from qualityhub.engine.errors import InvalidInputError

Severity = Literal["error", "warning", "info"]
Effort = Literal["quick", "standard", "certify"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")
EFFORTS: tuple[Effort, ...] = ("quick", "standard", "certify")


@dataclass(frozen=True, slots=True)
class AdmissionPolicy:
    """How an inspection's facts become a verdict.

    Attributes:
        name: For people.
        effort: How much is tried: see DESIGN, "Effort".
        allow_provisional: Whether results from a rehearsed image may admit.
        severity: Severity by rule code where it differs from the rule's default.
        ignore: Rule codes that this policy does not run.
        relax: Rule codes that an owner's own ``[rules]`` and waivers may relax.
        oracle_tolerance: A reference may fall this far below ``reward.success``.
        repeats: Repetitions behind a determinism claim, per task, by effort.
    """

    name: str = "default"
    effort: Effort = "standard"
    allow_provisional: bool = False
    severity: Mapping[str, Severity] = field(default_factory=dict)
    ignore: tuple[str, ...] = ()
    relax: tuple[str, ...] = ()
    oracle_tolerance: float = 0.0
    repeats: Mapping[str, int] = field(
        default_factory=lambda: {"quick": 1, "standard": 3, "certify": 300}
    )

    @property
    def version(self) -> str:
        """Digest of the policy's content; a verdict names it."""
        return digest_json("policy", _plain(asdict(self)))

    def as_json(self) -> dict[str, Any]:
        """Return the policy as the report prints it."""
        return {**_plain(asdict(self)), "version": self.version}


def load_admission_policy(path: Path) -> AdmissionPolicy:
    """Read the ``[admission]`` table of a TOML policy file.

    Raises:
        InvalidInputError: Unreadable file, unknown key (with the nearest known one), wrong type.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInputError(
            "policy.unreadable", f"Cannot read the policy {path}: {error.strerror}."
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInputError(
            "policy.not_toml", f"The policy {path} is not valid TOML: {error}."
        ) from error
    for table in document:
        if table not in {"admission", "gate"}:
            raise unknown_key("policy", table, ["admission", "gate"])
    return admission_policy_from(document.get("admission", {}))


def admission_policy_from(table: Mapping[str, Any]) -> AdmissionPolicy:
    """Build a policy from a parsed ``[admission]`` table.

    Raises:
        InvalidInputError: Unknown key or wrong type, naming key and expectation.
    """
    known = [item.name for item in fields(AdmissionPolicy)]
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in known:
            raise unknown_key("admission", key, known)
        values[key] = _checked(key, value)
    if "repeats" in values:
        values["repeats"] = {"quick": 1, "standard": 3, "certify": 300} | values["repeats"]
    return AdmissionPolicy(**values)


def unknown_key(where: str, key: str, known: list[str]) -> InvalidInputError:
    """Return the error for an unknown key, with a did-you-mean."""
    near = get_close_matches(key, known, n=1)
    hint = f"Did you mean {near[0]!r}?" if near else f"Known keys: {', '.join(sorted(known))}."
    return InvalidInputError("input.unknown_key", f"Unknown key {key!r} in [{where}].", hint)


def _checked(key: str, value: Any) -> Any:  # noqa: PLR0911 - one arm per key
    match key:
        case "name" if isinstance(value, str):
            return value
        case "effort" if value in EFFORTS:
            return value
        case "allow_provisional" if isinstance(value, bool):
            return value
        case "severity" if isinstance(value, dict) and all(v in SEVERITIES for v in value.values()):
            return dict(value)
        case "ignore" | "relax" if isinstance(value, (list, tuple)) and all(
            isinstance(v, str) for v in value
        ):
            return tuple(value)
        case "oracle_tolerance" if (
            isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1
        ):
            return float(value)
        case "repeats" if isinstance(value, dict) and all(
            k in EFFORTS and isinstance(v, int) and not isinstance(v, bool) and 1 <= v <= 10_000
            for k, v in value.items()
        ):
            return dict(value)
    expected = {
        "name": "text",
        "effort": f"one of {', '.join(EFFORTS)}",
        "allow_provisional": "true or false",
        "severity": f"a table of rule code = {' | '.join(SEVERITIES)}",
        "ignore": "a list of rule codes",
        "relax": "a list of rule codes",
        "oracle_tolerance": "a number from 0 to 1",
        "repeats": "a table of quick/standard/certify = 1..10000",
    }[key]
    raise InvalidInputError("input.wrong_type", f"[admission] {key} must be {expected}.")


def _plain(value: dict[str, Any]) -> dict[str, Any]:
    return {
        key: list(item)
        if isinstance(item, tuple)
        else dict(item)
        if hasattr(item, "items")
        else item
        for key, item in value.items()
    }
