"""Gate policy: what counts as a regression, and with which error rates. Data, versioned."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal

from qualityhub.engine.digest import digest_json
from qualityhub.engine.errors import InvalidInputError
from qualityhub.engine.policy import unknown_key

if TYPE_CHECKING:
    from pathlib import Path

Tier = Literal["critical", "supporting", "advisory"]
Confirm = Literal["holm", "fresh"]
ModelFailure = Literal["fail", "scored", "exclude"]


@dataclass(frozen=True, slots=True)
class Margins:
    """Largest drops that are accepted, as fractions: 0.02 is 2 points of pass rate.

    Attributes:
        domain: Of one domain.
        group: Of the mean over a group of domains.
        overall: Of the mean over all domains.
        floor: Worst plausible drop of any domain that a promotion may leave open.
    """

    domain: float = 0.02
    group: float = 0.015
    overall: float = 0.005
    floor: float = 0.10


@dataclass(frozen=True, slots=True)
class Budget:
    """Chances of blocking a checkpoint that did not get worse, by level; their sum is the whole.

    A level that a comparison does not have (no groups, one domain) leaves its share to the domains.
    """

    domains: float = 0.03
    groups: float = 0.015
    overall: float = 0.005


@dataclass(frozen=True, slots=True)
class DomainPolicy:
    """What holds for one domain.

    Attributes:
        tier: ``critical`` must itself be inside its margin; ``supporting`` blocks when it is
            confirmed worse and otherwise only has to stay above the floor; ``advisory`` is shown.
        margin: Largest accepted drop, a fraction of ``scale``.
        floor: Worst plausible drop a promotion may leave open.
        min_tasks: Fewer independent tasks than this never promote or block.
        coverage: Smallest share of tasks that both sides must have in common.
        run_noise: Standard deviation between runs that rollouts do not see.
        model_failure: Whether a model failure counts as reward 0, as it was scored, or not at all.
        scale: Width of the reward range; rewards are divided by it.
    """

    tier: Tier = "supporting"
    margin: float = 0.02
    floor: float = 0.10
    min_tasks: int = 20
    coverage: float = 0.95
    run_noise: float = 0.0
    model_failure: ModelFailure = "fail"
    scale: float = 1.0


@dataclass(frozen=True, slots=True)
class GatePolicy:
    """How rollouts become a verdict.

    Attributes:
        name: For people.
        alpha: One-sided level of every bound.
        power: Chance of a decision that "how many more" plans for.
        margins: See :class:`Margins`.
        budget: See :class:`Budget`.
        confirm: ``holm`` decides from what is there; ``fresh`` blocks only on a second measurement
            of the domains that the first one flagged.
        confirm_rollouts: Fresh rollouts per task and side that confirm a flagged domain.
        max_error_difference: Largest difference of the shares of invalid rollouts.
        tier, min_tasks, coverage, run_noise, model_failure: Defaults of :class:`DomainPolicy`.
        cluster_attribute: Row attribute that names what tasks share, empty for none.
        groups: Domain names or patterns (``code-*``) by group; the first match counts.
        domains: Overrides by domain name or pattern; an exact name wins, then the first match.
    """

    name: str = "default"
    alpha: float = 0.05
    power: float = 0.9
    margins: Margins = field(default_factory=Margins)
    budget: Budget = field(default_factory=Budget)
    confirm: Confirm = "holm"
    confirm_rollouts: int = 8
    max_error_difference: float = 0.01
    tier: Tier = "supporting"
    min_tasks: int = 20
    coverage: float = 0.95
    run_noise: float = 0.0
    model_failure: ModelFailure = "fail"
    cluster_attribute: str = ""
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    domains: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def version(self) -> str:
        """Digest of the policy's content; a decision names it."""
        return digest_json("gate-policy", self._content())

    def as_json(self) -> dict[str, Any]:
        """Return the policy as the decision prints it; :func:`gate_policy_from` reads it back."""
        return {**self._content(), "version": self.version}

    def for_domain(self, name: str) -> DomainPolicy:
        """Return what holds for one domain."""
        base = DomainPolicy(
            tier=self.tier,
            margin=self.margins.domain,
            floor=self.margins.floor,
            min_tasks=self.min_tasks,
            coverage=self.coverage,
            run_noise=self.run_noise,
            model_failure=self.model_failure,
        )
        for pattern in (name, *self.domains):
            if pattern in self.domains and (pattern == name or fnmatchcase(name, pattern)):
                return replace(base, **self.domains[pattern])
        return base

    def group_of(self, name: str) -> str | None:
        """Return the group of a domain, or None."""
        for group, patterns in self.groups.items():
            if any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns):
                return group
        return None

    def _content(self) -> dict[str, Any]:
        content = asdict(self)
        content["groups"] = {name: list(patterns) for name, patterns in self.groups.items()}
        content["domains"] = {name: dict(values) for name, values in self.domains.items()}
        return content


def load_gate_policy(path: Path) -> GatePolicy:
    """Read the ``[gate]`` table of a TOML policy file.

    Raises:
        InvalidInputError: Unreadable file, unknown key (with the nearest known one), wrong type.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInputError(
            "policy.unreadable", f"Cannot read the policy {path}: {error.strerror}."
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInputError(
            "policy.not_toml", f"The policy {path} is not valid TOML: {error}."
        ) from error
    for table in document:
        if table not in {"admission", "gate"}:
            raise unknown_key("policy", table, ["admission", "gate"])
    return gate_policy_from(document.get("gate", {}))


def gate_policy_from(table: Mapping[str, Any]) -> GatePolicy:
    """Build a policy from a parsed ``[gate]`` table, or from :meth:`GatePolicy.as_json`.

    Raises:
        InvalidInputError: Unknown key or wrong type, naming key and expectation.
    """
    if not isinstance(table, Mapping):
        raise _wrong("gate", "a table")
    values: dict[str, Any] = {}
    known = [item.name for item in fields(GatePolicy)]
    for key, value in table.items():
        where = f"gate.{key}"
        match key:
            case "version":
                continue
            case "margins":
                values[key] = Margins(**_table(where, value, _SHARES, Margins))
            case "budget":
                values[key] = Budget(**_table(where, value, _LEVELS, Budget))
            case "groups":
                values[key] = _groups(where, value)
            case "domains":
                values[key] = _domains(where, value)
            case _ if key in known:
                values[key] = _value(where, value, _CHECKS[key])
            case _:
                raise unknown_key("gate", key, known)
    policy = GatePolicy(**values)
    budget = policy.budget
    if budget.domains + budget.groups + budget.overall > 0.5:
        raise _wrong("gate.budget", "three shares that add up to at most 0.5")
    return policy


_Check = tuple[Callable[[Any], bool], str]


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _whole(low: int, high: int) -> _Check:
    return (
        lambda value: (
            isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
        ),
        f"a whole number from {low} to {high}",
    )


def _one_of(*names: str) -> _Check:
    return (lambda value: isinstance(value, str) and value in names, f"one of {', '.join(names)}")


_TEXT: _Check = (lambda value: isinstance(value, str), "text")
_SHARE: _Check = (
    lambda value: _number(value) and 0 < value <= 1,
    "a fraction above 0 and up to 1 (0.02 is 2 points)",
)
_LEVEL: _Check = (lambda value: _number(value) and 1e-6 <= value <= 0.5, "a chance up to 0.5")
_SHARES = dict.fromkeys(("domain", "group", "overall", "floor"), _SHARE)
_LEVELS = dict.fromkeys(("domains", "groups", "overall"), _LEVEL)
_NOISE: _Check = (lambda value: _number(value) and 0 <= value <= 1, "a fraction from 0 to 1")
_DOMAIN_CHECKS: dict[str, _Check] = {
    "tier": _one_of("critical", "supporting", "advisory"),
    "margin": _SHARE,
    "floor": _SHARE,
    # Below ten tasks t itself no longer keeps its error rate.
    "min_tasks": _whole(10, 1_000_000),
    "coverage": _SHARE,
    "run_noise": _NOISE,
    "model_failure": _one_of("fail", "scored", "exclude"),
    "scale": (lambda value: _number(value) and 0 < value <= 1e9, "a number above 0"),
}
_CHECKS: dict[str, _Check] = {
    "name": _TEXT,
    "alpha": _LEVEL,
    "power": (lambda value: _number(value) and 0.5 <= value <= 0.999, "a chance from 0.5 to 0.999"),
    "confirm": _one_of("holm", "fresh"),
    "confirm_rollouts": _whole(1, 10_000),
    "max_error_difference": _SHARE,
    "cluster_attribute": _TEXT,
} | {key: _DOMAIN_CHECKS[key] for key in ("tier", "min_tasks", "coverage", "run_noise")}
_CHECKS["model_failure"] = _DOMAIN_CHECKS["model_failure"]


def _value(where: str, value: Any, check: _Check) -> Any:
    accepts, expected = check
    if not accepts(value):
        raise _wrong(where, expected)
    return float(value) if _number(value) and not isinstance(value, int) else value


def _table(
    where: str, value: Any, checks: Mapping[str, _Check], kind: type | None = None
) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise _wrong(where, "a table")
    result: dict[str, Any] = {}
    for key, item in value.items():
        if key not in checks:
            raise unknown_key(where, key, list(checks))
        checked = _value(f"{where}.{key}", item, checks[key])
        result[key] = float(checked) if kind is not None else checked
    return result


def _groups(where: str, value: Any) -> dict[str, tuple[str, ...]]:
    if not isinstance(value, Mapping):
        raise _wrong(where, "a table of group = [domains]")
    for name, patterns in value.items():
        if (
            not isinstance(patterns, (list, tuple))
            or not patterns
            or not all(isinstance(pattern, str) and pattern for pattern in patterns)
        ):
            raise _wrong(f"{where}.{name}", "a list of domain names or patterns")
    return {name: tuple(patterns) for name, patterns in value.items()}


def _domains(where: str, value: Any) -> dict[str, dict[str, Any]]:
    if not isinstance(value, Mapping):
        raise _wrong(where, "a table of domain = {settings}")
    return {
        name: _table(f"{where}.{name}", overrides, _DOMAIN_CHECKS)
        for name, overrides in value.items()
    }


def _wrong(where: str, expected: str) -> InvalidInputError:
    return InvalidInputError("input.wrong_type", f"[{where}] must be {expected}.")
