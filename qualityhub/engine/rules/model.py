"""What a rule is. One module per rule; the catalogue finds them by name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from qualityhub.engine.environments.model import Environment, Family, Task
from qualityhub.engine.policy import AdmissionPolicy, Effort, Severity
from qualityhub.engine.trials.model import Ask, Observation, World


@dataclass(frozen=True, slots=True)
class Page:
    """The rule's page: docs, ``qualityhub rules CODE``, dashboard help and SARIF come from it.

    Attributes:
        what: What the rule does.
        why: Why it matters for training.
        example: What it looks like when it is wrong.
        fix: What to do about it.
    """

    what: str
    why: str
    example: str
    fix: str


@dataclass(frozen=True, slots=True)
class Found:
    """A finding as a rule yields it; policy and report add the rest.

    Attributes:
        message: One or two sentences naming what was expected and what was seen.
        ground: Stable words for the fingerprint: no digests, paths or line numbers.
        task: Task id, or None where it concerns the whole environment.
        evidence: JSON object: expected, seen, trial keys, outputs.
        location: Relative path with ``:line``, where there is one.
        kind: ``finding``, or ``lead`` where the ground is not independent of the grader.
        asks: What ``qualityhub reproduce`` runs again.
        severity: Only where it is milder than the rule's own.
    """

    message: str
    ground: str
    task: str | None = None
    evidence: Mapping[str, Any] = field(default_factory=dict)
    location: str = ""
    kind: Literal["finding", "lead"] = "finding"
    asks: tuple[Ask, ...] = ()
    severity: Severity | None = None


@dataclass(frozen=True, slots=True)
class Unmeasured:
    """What a rule could not judge of a task, and why; never a pass.

    Attributes:
        reason: One clause, lower case.
        would_need: What would make it possible.
        blocks: Whether the task stays pending for it; False where policy let it go.
    """

    reason: str
    would_need: str = ""
    blocks: bool = True


@dataclass(frozen=True, slots=True)
class Context:
    """What a rule may look at: everything is a value, nothing runs.

    Attributes:
        environment: The parsed environment.
        worlds: What its trials run in, by task id; ``""`` serves every task without its own.
        policy: The policy in force; ``policy.effort`` is the effort.
        see: Returns the observation of an ask, or None while it is still unknown.
        memo: What several rules work out alike; None where ``see`` may come to know more.
    """

    environment: Environment
    worlds: Mapping[str, World]
    policy: AdmissionPolicy
    see: Callable[[Ask], Observation | None]
    memo: dict[Any, Any] | None = None

    def world(self, task: str = "") -> World:
        """Return the world of a task."""
        return self.worlds.get(task) or self.worlds[""]

    def known(self, ask: Ask) -> Observation:
        """Return an observation that is there by contract: judged after all asks are answered.

        Raises:
            KeyError: The rule looks at something it never asked for.
        """
        observation = self.see(ask)
        if observation is None:
            raise KeyError(ask)
        return observation


class Rule(ABC):
    """One rule of the catalogue.

    Static rules implement :meth:`check_package`; behavioural ones :meth:`asks` and
    :meth:`check_task`. All methods are pure.
    """

    code: ClassVar[str]
    version: ClassVar[int] = 1
    title: ClassVar[str]
    severity: ClassVar[Severity] = "error"
    cost: ClassVar[Literal["static", "behaviour"]]
    from_effort: ClassVar[Effort] = "quick"
    families: ClassVar[frozenset[Family]]
    layers: ClassVar[tuple[str, ...]] = ("statement", "environment", "verifier", "solution")
    fields: ClassVar[frozenset[str]] = frozenset()
    """What of a variation the rule answers for; empty for a rule about something else."""
    page: ClassVar[Page]

    def not_applicable(self, context: Context) -> str:
        """Return why the rule has nothing to look at here, or an empty string."""
        if context.environment.family not in self.families:
            return f"does not apply to the {context.environment.adapter} format"
        return ""

    def asks(self, context: Context, task: Task) -> Iterable[Ask]:
        """Yield what the rule still or already wanted to see of a task.

        Called again after every round; it may look at earlier observations, and it must keep
        yielding what it asked before.
        """
        del context, task
        return ()

    def check_task(self, context: Context, task: Task) -> Iterable[Found | Unmeasured]:
        """Judge one task; every ask of the task has its observation by now."""
        del context, task
        return ()

    def check_package(self, context: Context) -> Iterable[Found]:
        """Judge the package as files."""
        del context
        return ()

    @abstractmethod
    def measures(self) -> str:
        """Say in a few words what a pass of this rule claims, for the report."""
