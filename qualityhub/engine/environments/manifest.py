"""Read ``qualityhub.toml``: what an owner states about an environment, and what he asks for."""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from qualityhub.engine.environments.files import MANIFEST
from qualityhub.engine.environments.model import RewardSpec
from qualityhub.engine.environments.tables import (
    ANY,
    FLAG,
    TABLE,
    TEXT,
    TEXT_TABLE,
    TEXTS,
    Several,
    Shape,
    check_table,
    choice,
    either,
    plain,
    read_toml,
    wrong_type,
)
from qualityhub.engine.errors import UnreadablePackageError
from qualityhub.engine.policy import EFFORTS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SHAPE: Shape = {
    "environment": {
        "name": TEXT,
        "domain": TEXT,
        "adapter": TEXT,
        "entry": TEXT,
        "python": TEXT,
        "dependencies": TEXTS,
        "requirements": either(TEXT, TEXTS),
        "launcher": either(TEXT, TEXTS),
        "kwargs": TABLE,
        "devices": TEXTS,
        "labels": TEXT_TABLE,
        "reward": {"range": ANY, "success": ANY},
        "seedable": FLAG,
        "effort": choice(*EFFORTS),
    },
    "rules": {"select": TEXTS, "ignore": TEXTS},
    "waivers": Several({"code": TEXT, "task": TEXT, "reason": TEXT, "until": ANY}),
}
_CODE = re.compile(r"[A-Z]{3}[0-9]{3}")
_RULES = re.compile(r"[A-Z]{3}[0-9]{0,3}|[A-Z]{1,2}")
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_LABELS = 20
_NAME_LENGTH = 200


@dataclass(frozen=True, slots=True)
class Manifest:
    """What ``qualityhub.toml`` says; everything empty where there is none.

    Attributes:
        environment: The ``[environment]`` table as JSON values; part of the environment layer.
        requests: ``rules``, ``waivers`` and ``effort``: requests that a policy may grant.
        present: Whether there is a file.
    """

    environment: Mapping[str, Any] = field(default_factory=dict)
    requests: Mapping[str, Any] = field(default_factory=dict)
    present: bool = False

    def text(self, key: str) -> str:
        """Return a text of the ``[environment]`` table, empty where it is not given."""
        value = self.environment.get(key, "")
        return value if isinstance(value, str) else ""

    @property
    def layer(self) -> dict[str, Any]:
        """Return what of the table can influence a trial: not its names, not the effort."""
        aside = {"name", "domain", "effort", "adapter", "labels"}
        return {key: value for key, value in self.environment.items() if key not in aside}

    @property
    def kwargs(self) -> dict[str, Any]:
        """Return the constructor's keyword arguments."""
        return dict(self.environment.get("kwargs", {}))

    @property
    def seedable(self) -> bool:
        """Return False where the owner declares that a seed does not fix an episode."""
        return self.environment.get("seedable", True) is True

    def reward(self, assumed: RewardSpec) -> RewardSpec:
        """Return the declared meaning of a reward, or the assumed one."""
        table = self.environment.get("reward")
        if not table:
            return assumed
        low, high = table.get("range", (assumed.low, assumed.high))
        success = table.get("success", assumed.success if high is None else high)
        return RewardSpec(
            low=_bound(low), high=_bound(high), success=float(success), declared="range" in table
        )


def read_manifest(root: Path) -> Manifest:
    """Return what the ``qualityhub.toml`` in a folder says.

    Raises:
        UnreadablePackageError: Not TOML, unknown key (with the nearest known one), wrong type.
    """
    if not (root / MANIFEST).is_file():
        return Manifest()
    document = read_toml(root, MANIFEST)
    for unknown in check_table(document, SHAPE, MANIFEST):
        raise UnreadablePackageError(
            "package.unknown_key", f"{MANIFEST}: {unknown.says}", unknown.hint
        )
    table = document.get("environment", {})
    _check_environment(table)
    requests: dict[str, Any] = {}
    if rules := document.get("rules"):
        requests["rules"] = {key: _codes(key, value) for key, value in rules.items()}
    if waivers := document.get("waivers"):
        requests["waivers"] = [_waiver(item) for item in waivers]
    if "effort" in table:
        requests["effort"] = table["effort"]
    return Manifest(environment=plain(table), requests=requests, present=True)


def _check_environment(table: Mapping[str, Any]) -> None:
    for key in ("name", "domain", "adapter", "entry", "python"):
        value = table.get(key)
        if value is not None and not 0 < len(value) <= _NAME_LENGTH:
            raise wrong_type(MANIFEST, f"environment.{key}", f"1 to {_NAME_LENGTH} characters")
        if value is not None and not value.isprintable():
            raise wrong_type(MANIFEST, f"environment.{key}", "printable text")
    if "dependencies" in table and "requirements" in table:
        raise UnreadablePackageError(
            "package.contradiction",
            f"{MANIFEST}: [environment] has both dependencies and requirements.",
            "Keep one of the two.",
        )
    labels = table.get("labels", {})
    if len(labels) > _LABELS or not all(
        _LABEL.fullmatch(item) for pair in labels.items() for item in pair
    ):
        raise wrong_type(
            MANIFEST,
            "environment.labels",
            f"at most {_LABELS} labels of letters, digits, dots, dashes and underscores",
        )
    try:
        json.dumps(plain(table.get("kwargs", {})), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise wrong_type(MANIFEST, "environment.kwargs", "a table of JSON values") from error
    reward = table.get("reward", {})
    if "range" in reward:
        span = reward["range"]
        if (
            not isinstance(span, list)
            or len(span) != 2
            or not all(_is_number(item) for item in span)
            or not span[0] < span[1]
        ):
            raise wrong_type(
                MANIFEST, "environment.reward.range", "[low, high] with low < high; -inf and inf"
            )
    if "success" in reward and not (
        _is_number(reward["success"]) and math.isfinite(reward["success"])
    ):
        raise wrong_type(MANIFEST, "environment.reward.success", "a number")


def _codes(key: str, value: list[str]) -> list[str]:
    for code in value:
        if not _RULES.fullmatch(code):
            raise wrong_type(MANIFEST, f"rules.{key}", "a list of rule codes or their beginnings")
    return list(value)


def _waiver(item: Mapping[str, Any]) -> dict[str, Any]:
    for key in ("code", "reason", "until"):
        if not item.get(key):
            raise UnreadablePackageError(
                "package.missing_key",
                f"{MANIFEST}: a waiver has no {key}.",
                'A waiver names code, reason and until = "YYYY-MM-DD"; task is optional.',
            )
    if not _CODE.fullmatch(item["code"]):
        raise wrong_type(MANIFEST, "waivers.code", "one rule code such as VER001")
    until = item["until"]
    if isinstance(until, dt.datetime):
        until = until.date()
    if isinstance(until, str):
        try:
            until = dt.date.fromisoformat(until)
        except ValueError as error:
            raise wrong_type(MANIFEST, "waivers.until", "a date, YYYY-MM-DD") from error
    if not isinstance(until, dt.date):
        raise wrong_type(MANIFEST, "waivers.until", "a date, YYYY-MM-DD")
    return {
        "code": item["code"],
        "task": item.get("task"),
        "reason": item["reason"],
        "until": until.isoformat(),
    }


def _is_number(value: Any) -> bool:
    if isinstance(value, int):
        return not isinstance(value, bool) and abs(value) < 2**53
    return isinstance(value, float) and not math.isnan(value)


def _bound(value: Any) -> float | None:
    if value is None:
        return None
    number = float(value)
    return number if math.isfinite(number) else None
