"""The decision: one frozen document, the same from files, REST and dashboard (DESIGN 4.1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Literal

SCHEMA = "qualityhub.gate/1"

Verdict = Literal["promote", "block", "inconclusive", "incomparable"]
EXIT_CODES: Mapping[str, int] = {"promote": 0, "block": 1, "inconclusive": 3, "incomparable": 4}

Cause = Literal[
    "",
    "inside-margin",
    "confirmed",
    "screened",
    "imprecise",
    "validity",
    "few-tasks",
    "missing",
    "coverage",
    "error-rates",
]
"""Why a verdict is what it is, for programs; ``reason`` says it for people."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """An estimate as the documents show it; fractions, None where nothing could be estimated.

    Attributes:
        n_tasks: Paired tasks.
        baseline_mean: Mean over paired tasks.
        candidate_mean: Likewise.
        delta: Candidate minus baseline.
        lower: One-sided bound: the change is above it.
        upper: One-sided bound: the change is below it.
        p_worse: One-sided p-value for a drop, before any correction.
        se: Standard error of ``delta``.
    """

    n_tasks: int = 0
    baseline_mean: float | None = None
    candidate_mean: float | None = None
    delta: float | None = None
    lower: float | None = None
    upper: float | None = None
    p_worse: float | None = None
    se: float | None = None


@dataclass(frozen=True, slots=True)
class LevelReport:
    """The verdict on a group of domains or on all of them.

    Attributes:
        name: Group name, or ``overall``.
        verdict: Of this level alone.
        cause: See :data:`Cause`.
        reason: One sentence.
        numbers: Task-weighted mean over the comparable domains.
        margin: Accepted drop.
        p_adjusted: ``p_worse`` after Holm over the groups.
        domains: Names of the domains that took part.
        needed: What would settle it, or None.
    """

    name: str
    verdict: Verdict
    cause: Cause
    reason: str
    numbers: Numbers
    margin: float
    p_adjusted: float | None
    domains: tuple[str, ...]
    needed: Mapping[str, Any] | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the level as the gate document shows it."""
        return {
            "name": self.name,
            "verdict": self.verdict,
            "cause": self.cause,
            "reason": self.reason,
            **_numbers(self.numbers),
            "p_adjusted": clean(self.p_adjusted),
            "margin": self.margin,
            "n_domains": len(self.domains),
            "needed": clean(self.needed),
        }


@dataclass(frozen=True, slots=True)
class DomainReport:
    """The verdict on one domain; names follow the public JSON.

    Attributes:
        domain: Name.
        verdict: One of the four.
        cause: See :data:`Cause`.
        reason: One sentence.
        tier: What the domain may do to the checkpoint.
        group: Its group, or None.
        numbers: The estimate.
        n_clusters: Independent units, where tasks share something.
        n_rollouts: Counted rollouts by side.
        margin: Accepted drop.
        p_adjusted: ``p_worse`` after Holm over the family it is judged in.
        needed: ``rollouts_per_task, tasks, reason`` and more, or None where it is settled.
        coverage: Share of tasks that were compared.
        excluded: Tasks that were not, with the reason.
        flips: Tasks that changed sides, with what chance alone would do.
        metrics: Tokens, cost, latency, turns; advisory.
        validity: Rollouts by validity and side, and the verdict at both extremes.
    """

    domain: str
    verdict: Verdict
    cause: Cause
    reason: str
    tier: str
    group: str | None
    numbers: Numbers
    n_clusters: int
    n_rollouts: Mapping[str, int]
    margin: float
    p_adjusted: float | None
    needed: Mapping[str, Any] | None
    coverage: float
    excluded: tuple[Mapping[str, str], ...] = ()
    flips: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Any] = field(default_factory=dict)
    validity: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the domain as the gate document shows it."""
        return {
            "domain": self.domain,
            "verdict": self.verdict,
            "cause": self.cause,
            "reason": self.reason,
            "tier": self.tier,
            "group": self.group,
            **_numbers(self.numbers),
            "n_clusters": self.n_clusters,
            "n_rollouts": dict(self.n_rollouts),
            "p_adjusted": clean(self.p_adjusted),
            "margin": self.margin,
            "needed": clean(self.needed),
            "coverage": clean(self.coverage),
            "excluded": [dict(item) for item in self.excluded],
            "flips": clean(self.flips),
            "metrics": clean(self.metrics),
            "validity": clean(self.validity),
            "slices": [],
        }


@dataclass(frozen=True, slots=True)
class Decision:
    """The whole decision; with the same inputs and software it comes out the same.

    Attributes:
        verdict: On the checkpoint.
        policy: The policy in force, with its version.
        overall: The level over all domains, or None where no domain could be compared.
        groups: One level per group.
        domains: Worst first.
        reasons: What led to the verdict, one sentence each.
        notes: What a reader should know beside it.
        inputs: Digests and sizes of both sides.
        software: Versions that computed it.
    """

    verdict: Verdict
    policy: Mapping[str, Any]
    overall: LevelReport | None
    groups: tuple[LevelReport, ...]
    domains: tuple[DomainReport, ...]
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    inputs: Mapping[str, Any] = field(default_factory=dict)
    software: Mapping[str, str] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """Exit code of ``qualityhub gate``."""
        return EXIT_CODES[self.verdict]

    def as_json(self) -> dict[str, Any]:
        """Return the public document, ``{"schema": "qualityhub.gate/1", ...}``."""
        return {
            "schema": SCHEMA,
            "verdict": self.verdict,
            "reasons": list(self.reasons),
            "policy": clean(self.policy),
            "overall": self.overall.as_json() if self.overall else {},
            "groups": [group.as_json() for group in self.groups],
            "domains": [domain.as_json() for domain in self.domains],
            "notes": list(self.notes),
            "inputs": clean(self.inputs),
            "software": dict(self.software),
        }


def clean(value: Any) -> Any:
    """Return plain JSON values: floats to twelve digits, None for what is not finite."""
    if isinstance(value, bool) or value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, float):
        return float(f"{value:.12g}") if isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: clean(item) for key, item in value.items()}
    return [clean(item) for item in value]


def _numbers(numbers: Numbers) -> dict[str, Any]:
    return {
        "n_tasks": numbers.n_tasks,
        "baseline_mean": clean(numbers.baseline_mean),
        "candidate_mean": clean(numbers.candidate_mean),
        "delta": clean(numbers.delta),
        "lower": clean(numbers.lower),
        "upper": clean(numbers.upper),
        "p_worse": clean(numbers.p_worse),
        "se": clean(numbers.se),
    }
