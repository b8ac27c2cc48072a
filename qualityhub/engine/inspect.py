"""The inspection loop on one host: read, prepare, run rounds of trials, report."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Protocol

from qualityhub.engine.digest import digest_json
from qualityhub.engine.environments.model import Environment
from qualityhub.engine.environments.reader import read_environment
from qualityhub.engine.errors import (
    MachineryError,
    SandboxUnavailableError,
    UnreadablePackageError,
)
from qualityhub.engine.interrupts import held
from qualityhub.engine.policy import AdmissionPolicy
from qualityhub.engine.report import Finding, InspectionReport, RuleReport
from qualityhub.engine.rules.advance import Inspection, Tally, advance
from qualityhub.engine.rules.catalogue import find_rule, select_rules
from qualityhub.engine.rules.verdict import fingerprint
from qualityhub.engine.sandbox.port import Sandbox
from qualityhub.engine.sandbox.select import select_sandbox
from qualityhub.engine.trials.drivers import plan_trials
from qualityhub.engine.trials.model import Ask, Observation, Trial, TrialResult, World
from qualityhub.engine.trials.runner import TrialRunner, cores, run_trials, world_digests
from qualityhub.engine.trials.store import NullStore, TrialStore, directory_store
from qualityhub.engine.trials.worlds import prepare_world


@dataclass(frozen=True, slots=True)
class InspectOptions:
    """How to inspect.

    Attributes:
        policy: The admission policy; its effort counts.
        home: Data folder: layers, images, trial results.
        sandbox: ``auto``, ``bwrap`` or ``container``.
        jobs: Trials at once; 0 means one per CPU.
        cache: Whether stored results count.
        select: Rule codes or prefixes; empty means all.
        ignore: Rule codes or prefixes to leave out.
        adapter: Format to force.
        domain: Domain to put into the report.
        generation: Raised to ask for fresh results.
        budget_s: Seconds after which no new trial starts; the rest is reported as not measured.
        fork_server: Whether trials may share what is loaded once; None asks ``QH_FORK_SERVER``.
    """

    policy: AdmissionPolicy
    home: Path
    sandbox: Literal["auto", "bwrap", "container"] = "auto"
    jobs: int = 0
    cache: bool = True
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    adapter: str | None = None
    domain: str | None = None
    generation: int = 0
    budget_s: float | None = None
    fork_server: bool | None = None


class Progress(Protocol):
    """Hears how an inspection goes on; called from one thread."""

    def stage(self, text: str) -> None:
        """A new stage begins."""

    def trials(self, done: int, total: int, cached: int) -> None:
        """So many trials of so many are known; ``total`` grows with every round."""

    def log(self, text: str) -> None:
        """A line that a person may want to read."""


class NullProgress:
    """Says nothing."""

    def stage(self, text: str) -> None:
        """Ignore it."""

    def trials(self, done: int, total: int, cached: int) -> None:
        """Ignore it."""

    def log(self, text: str) -> None:
        """Ignore it."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What an inspection's first round would run.

    Attributes:
        environment: Name, adapter, number of tasks.
        trials: Trials of the first round.
        asks: Asks of the first round.
        cached: How many of the trials are already known.
        by_rule: Asks by rule code; one ask may serve several rules.
    """

    environment: Mapping[str, Any]
    trials: int
    asks: int
    cached: int
    by_rule: Mapping[str, int]


@dataclass(slots=True)
class _Run:
    """The mutable state of one inspection."""

    inspection: Inspection
    runner: TrialRunner
    seen: dict[Ask, Observation] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    ran: int = 0
    cached: int = 0
    total: int = 0

    def take(self, trial: Trial, result: TrialResult) -> None:
        """Store one result."""
        self.seen.update(zip(trial.asks, result.observations, strict=True))
        self.seconds[result.key] = result.seconds
        if result.cached:
            self.cached += 1
        else:
            self.ran += 1


def inspect_source(
    source: str, options: InspectOptions, progress: Progress | None = None
) -> InspectionReport:
    """Inspect one source to its report.

    A package that cannot be read is a report too: verdict ``rejected`` with an FMT001 finding.

    Raises:
        InvalidInputError: The options or the source's form are wrong (a missing file, an unknown
            rule code), as opposed to a broken package.
    """
    progress = progress or NullProgress()
    started = time.monotonic()
    select_rules(options.select, options.ignore)
    progress.stage("reading")
    try:
        environment = read_environment(source, adapter=options.adapter, domain=options.domain)
    except UnreadablePackageError as error:
        return unreadable_report(source, error, options.policy)
    progress.log(f"{environment.name}: {environment.adapter}, {len(environment.tasks)} tasks")
    with ExitStack() as stack:
        run = _prepare(source, environment, options, progress, stack)
        jobs = options.jobs or cores()

        def on_result(trial: Trial, result: TrialResult) -> None:
            run.take(trial, result)
            progress.trials(run.ran + run.cached, run.total, run.cached)

        while True:
            step = advance(run.inspection, run.seen, _tally(run, started))
            if step.report is not None:
                return step.report
            trials = plan_trials(
                environment,
                world_digests(run.inspection.worlds),
                step.asks,
                options.generation,
            )
            run.total += len(trials)
            progress.stage("trials")
            until = None if options.budget_s is None else started + options.budget_s
            run_trials(run.runner, trials, jobs, on_result, until)
            left = [ask for ask in step.asks if ask not in run.seen]
            _give_up(run, left, options.budget_s or 0.0)


def prepare_worlds(
    environment: Environment,
    sandbox: Sandbox | None,
    home: Path,
    log: Callable[[str], None],
    unavailable: str = "",
) -> dict[str, World]:
    """Prepare what the environment's trials run in: one world, or one per Harbor task.

    Args:
        environment: The parsed package.
        sandbox: The provider, or None where this host has none.
        home: Data folder.
        log: Hears what is being built.
        unavailable: Why there is no provider.
    """
    if sandbox is None:
        return {"": World("unavailable", reason=unavailable, would_need="a working sandbox")}
    if environment.family == "task":
        return {
            task.id: prepare_world(environment, sandbox, home, task=task, progress=log)
            for task in environment.tasks
        }
    return {"": prepare_world(environment, sandbox, home, progress=log)}


def plan_source(source: str, options: InspectOptions) -> Plan:
    """Say what the first round of an inspection would run; nothing foreign runs.

    Raises:
        UnreadablePackageError: The package cannot be read.
    """
    environment = read_environment(source, adapter=options.adapter, domain=options.domain)
    worlds = {"": World("ready", digest="plan")}
    by_rule = {}
    inspection = Inspection(
        environment, worlds, options.policy, source, options.select, options.ignore
    )
    for rule in select_rules(options.select, (*options.ignore, *options.policy.ignore)):
        alone = Inspection(environment, worlds, options.policy, source, (rule.code,))
        by_rule[rule.code] = len(advance(alone, {}).asks)
    asks = advance(inspection, {}).asks
    trials = plan_trials(environment, {"": "plan"}, asks, options.generation)
    return Plan(
        {
            "name": environment.name,
            "adapter": environment.adapter,
            "tasks": len(environment.tasks),
        },
        len(trials),
        len(asks),
        0,
        by_rule,
    )


def reproduce(
    source: str, asks: Sequence[Ask], options: InspectOptions
) -> list[tuple[Ask, Observation]]:
    """Run asks again, never from the store, each in a world started for it alone.

    Raises:
        UnreadablePackageError: The package cannot be read any more.
        SandboxUnavailableError: No provider here.
        MachineryError: Its world cannot be built here.
    """
    environment = read_environment(source, adapter=options.adapter, domain=options.domain)
    known = {task.id for task in environment.tasks}
    asks = [ask for ask in asks if ask.task in known]
    sandbox = select_sandbox(options.sandbox, options.home)
    with ExitStack() as stack:
        stack.callback(sandbox.close)
        worlds = prepare_worlds(environment, sandbox, options.home, lambda _text: None)
        for world in worlds.values():
            if world.status != "ready":
                raise MachineryError("world.not_ready", world.reason, world.would_need)
        with held():
            runner = TrialRunner(environment, worlds, sandbox, NullStore(), options.home)
            stack.callback(runner.close)
        seen: dict[Ask, Observation] = {}

        def on_result(trial: Trial, result: TrialResult) -> None:
            seen.update(zip(trial.asks, result.observations, strict=True))

        alone = [replace(ask, cold=True) for ask in asks]
        run_trials(runner, plan_trials(environment, world_digests(worlds), alone), 1, on_result)
        return [(ask, seen[twin]) for ask, twin in zip(asks, alone, strict=True)]


def unreadable_report(
    source: str, error: UnreadablePackageError, policy: AdmissionPolicy
) -> InspectionReport:
    """Return the report of a package that cannot be read."""
    rule = find_rule("FMT001")
    mark = fingerprint(rule.code, None, error.code)
    identity = "f-" + mark.rpartition(":")[2][:12]
    return InspectionReport(
        environment={
            "name": source.rstrip("/").rpartition("/")[2] or source,
            "adapter": "",
            "digest": digest_json("unreadable", [source, error.message]),
            "tasks": 0,
            "provisional": False,
            "provisional_reason": "",
            "family": "",
            "domain": None,
            "source": source,
            "lock": [],
        },
        verdict="rejected",
        policy=policy.as_json(),
        findings=(
            Finding(
                id=identity,
                code=rule.code,
                rule_version=rule.version,
                kind="finding",
                severity="error",
                waived=False,
                task=None,
                message=error.message,
                evidence={"code": error.code, "hint": error.hint},
                location="",
                reproduce=f"qualityhub inspect {source}",
                fingerprint=mark,
                title=rule.title,
                fix=error.hint or rule.page.fix,
            ),
        ),
        tasks=(),
        not_measured=(),
        rules=(RuleReport(rule.code, "fail", error.code, title=rule.title),),
        trials={"run": 0, "cached": 0, "seconds": 0.0},
        host=host_facts(),
    )


def host_facts() -> dict[str, Any]:
    """Return provenance of this host; no digest contains it."""
    return {
        "system": platform.system(),
        "kernel": platform.release(),
        "arch": platform.machine(),
        "cpus": cores(),
    }


def _prepare(
    source: str,
    environment: Environment,
    options: InspectOptions,
    progress: Progress,
    stack: ExitStack,
) -> _Run:
    sandbox: Sandbox | None = None
    rules = select_rules(options.select, (*options.ignore, *options.policy.ignore))
    reason = "only static rules were selected"
    if any(rule.cost == "behaviour" for rule in rules):
        try:
            sandbox = select_sandbox(options.sandbox, options.home)
            stack.callback(sandbox.close)
        except SandboxUnavailableError as error:
            reason = f"{error.message} {error.hint}".strip()
            progress.log(reason)
    progress.stage("preparing")
    worlds = prepare_worlds(environment, sandbox, options.home, progress.log, reason)
    for world in worlds.values():
        if world.provisional:
            progress.log(f"provisional: {world.provisional_reason}")
            break
    inspection = Inspection(
        environment=environment,
        worlds=worlds,
        policy=options.policy,
        source=source,
        select=options.select,
        ignore=options.ignore,
        today=datetime.now(UTC).date().isoformat(),
        host=host_facts(),
    )
    store: TrialStore = directory_store(options.home) if options.cache else NullStore()
    if sandbox is None:
        return _Run(inspection, None)  # type: ignore[arg-type]  # advance asks nothing without a world
    with held():
        runner = TrialRunner(
            environment, worlds, sandbox, store, options.home, fork_server=options.fork_server
        )
        stack.callback(runner.close)
    return _Run(inspection, runner)


def _tally(run: _Run, started: float) -> Tally:
    return Tally(run.ran, run.cached, time.monotonic() - started, run.seconds)


def _give_up(run: _Run, asks: Sequence[Ask], budget_s: float) -> None:
    for ask in asks:
        run.seen[ask] = Observation("unmeasured", detail=f"the budget of {budget_s:g} s was spent")
