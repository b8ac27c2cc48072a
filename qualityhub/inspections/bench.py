"""A worker's bench: the sandbox and what it keeps at hand, and how it does one batch.

One bench per process, made after the fork. Foreign code runs in the sandbox alone.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from django.conf import settings
from django.db import connection

from qualityhub.engine.errors import QualityHubError, SandboxUnavailableError
from qualityhub.engine.inspect import prepare_worlds
from qualityhub.engine.sandbox.engine import engine_address
from qualityhub.engine.sandbox.select import select_sandbox
from qualityhub.engine.trials.codec import trial_from_json
from qualityhub.engine.trials.runner import TrialRunner, run_trials
from qualityhub.engine.trials.worlds import (
    locate_world,
    prepare_world,
    world_from_json,
    world_to_json,
)
from qualityhub.inspections import rounds
from qualityhub.inspections.choices import BatchKind
from qualityhub.inspections.claims import (
    Lease,
    LeaseLostError,
    lease_extend,
    lease_give_back,
    lease_refuse,
)
from qualityhub.inspections.faults import Faults, own_fault
from qualityhub.inspections.needs import Offer
from qualityhub.inspections.results import BatchStore, results_known
from qualityhub.inspections.subjects import subject_of
from qualityhub.inspections.tickets import tickets_send
from qualityhub.inspections.turns import Fits
from qualityhub.registry.packages import version_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from types import TracebackType

    from qualityhub.engine.environments.model import Environment
    from qualityhub.engine.sandbox.port import Sandbox
    from qualityhub.engine.trials.model import Trial, TrialResult, World
    from qualityhub.registry.models import EnvironmentVersion

logger = logging.getLogger(__name__)
AT_HAND = 2
"""Environments and staged inspections kept between batches."""


class StoppingError(QualityHubError):
    """The worker is about to end; what is not done goes back."""

    def __init__(self) -> None:
        super().__init__("worker.stopping", "The worker is about to end.")


class CannotHereError(QualityHubError):
    """This worker cannot have the world that an inspection was prepared in.

    Args:
        reason: Why, for operators.
    """

    def __init__(self, reason: str) -> None:
        super().__init__("world.differs", reason)


@dataclass(slots=True)
class Staged:
    """One inspection with its files staged for trials."""

    environment: Environment
    worlds: dict[str, World]
    runner: TrialRunner


class Pulse:
    """Keeps a lease while its batch is being done, from a thread of its own.

    Args:
        lease: The claim.
    """

    def __init__(self, lease: Lease) -> None:
        self.lease = lease
        self.lost = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="lease", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _beat(self) -> None:
        try:
            while not self._ended.wait(settings.QH_LEASE_SECONDS / 4):
                try:
                    if not lease_extend(self.lease):
                        self.lost.set()
                        return
                except Exception:  # The database may be back before the lease ends.
                    logger.exception("lease_not_extended")
                    connection.close()
        finally:
            connection.close()


class Bench:
    """Does batches, one at a time.

    Args:
        worker: Name for people.
        stopping: Says that the worker is about to end.
        offer: What it can do; without one it takes whatever waits.
    """

    def __init__(
        self,
        worker: str,
        stopping: Callable[[], bool] = lambda: False,
        offer: Offer | None = None,
    ) -> None:
        self.worker = worker
        self.stopping = stopping
        self.fits = Fits(offer or Offer(worker, anything=True))
        self.faults = Faults(self.fits.offer.session)
        self._sandbox: Sandbox | None = None
        self._environments: OrderedDict[tuple[int, str], Environment] = OrderedDict()
        self._staged: OrderedDict[int, Staged] = OrderedDict()

    def work(self, lease: Lease) -> None:
        """Do one batch; whatever goes wrong with it is noted on the row instead of raised.

        Raises:
            DatabaseError: The row cannot be reached; the claim then ends with its lease.
        """
        batch = lease.batch
        try:
            with Pulse(lease) as pulse:
                if batch.kind == BatchKind.PREPARE:
                    self._prepare(lease, pulse)
                elif batch.kind == BatchKind.ADVANCE:
                    environment = self._environment(batch.inspection.version)
                    rounds.advance_run(lease, subject_of(batch.inspection, environment))
                else:
                    self._trials(lease, pulse)
            self.faults.clear()
        except LeaseLostError:
            logger.warning("lease_lost", extra={"fields": {"batch": batch.pk}})
            self.reset()
        except StoppingError:
            lease_give_back(lease)
        except CannotHereError as error:
            self._refuse(lease, error)
        except Exception as error:
            fault = own_fault(error)
            # One that takes anything is alone: nobody else could have it.
            if fault and not self.fits.offer.anything:
                logger.exception("own_fault", extra={"fields": {"batch": batch.pk}})
                self._refuse(lease, CannotHereError(fault))
                self.faults.add(fault)
                return
            # A broken connection must not keep the claim until it expires.
            logger.exception("batch_failed", extra={"fields": {"batch": batch.pk}})
            self.reset()
            lease_give_back(lease, reason=f"{type(error).__name__}: {error}", counts=True)

    def look_again(self) -> None:
        """See whether a container engine has come or gone; nothing else of a host changes."""
        offer = self.fits.offer
        if not offer.anything and offer.engine != (engine := bool(engine_address())):
            self.fits = Fits(replace(offer, engine=engine))

    def close(self) -> None:
        """End the sandbox and remove what was staged."""
        self.reset()
        self._environments.clear()

    def reset(self) -> None:
        """Begin afresh with the next batch: a failed one may have broken what it used."""
        for staged in self._staged.values():
            staged.runner.close()
        self._staged.clear()
        sandbox, self._sandbox = self._sandbox, None
        if sandbox is not None:
            sandbox.close()

    def sandbox(self) -> Sandbox:
        """Return this process's sandbox, made on first use.

        Raises:
            SandboxUnavailableError: None works here.
        """
        if self._sandbox is None:
            kind: Any = settings.QH_SANDBOX  # Checked to be one of the kinds when it was read.
            self._sandbox = select_sandbox(kind, self._home())
        return self._sandbox

    def _prepare(self, lease: Lease, pulse: Pulse) -> None:
        rounds.prepare_begin(lease)
        environment = self._environment(lease.batch.inspection.version)
        reason, sandbox = "", None
        try:
            sandbox = self.sandbox()
        except SandboxUnavailableError as error:
            reason = f"{error.message} {error.hint}".strip()

        def heard(text: str) -> None:
            logger.info("preparing", extra={"fields": {"batch": lease.batch.pk, "text": text}})
            rounds.prepare_tell(lease, text)
            self._check(pulse)

        worlds = prepare_worlds(environment, sandbox, self._home(), heard, reason)
        rounds.prepare_end(
            lease,
            {task: world_to_json(world) for task, world in worlds.items()},
            ownership=sandbox.capability().ownership if sandbox is not None else None,
        )

    def _trials(self, lease: Lease, pulse: Pulse) -> None:
        batch = lease.batch
        trials = [trial_from_json(document) for document in batch.trials]
        staged = self._stage(lease)
        known = results_known(batch.inspection.team_id, [trial.key for trial in trials])
        staged.runner.store = BatchStore(known)
        results: list[tuple[Trial, TrialResult]] = []

        def heard(trial: Trial, result: TrialResult) -> None:
            results.append((trial, result))
            if len(results) < len(trials):
                self._check(pulse)

        try:
            run_trials(staged.runner, trials, 1, heard)
        except StoppingError:
            done = {trial.key for trial, _ in results}
            rest = [trial for trial in trials if trial.key not in done]
            rounds.batch_store_part(lease, results, rest)
            self.reset()
            return
        rounds.batch_store(lease, results)

    def _check(self, pulse: Pulse) -> None:
        if pulse.lost.is_set():
            raise LeaseLostError
        if self.stopping():
            raise StoppingError

    def _stage(self, lease: Lease) -> Staged:
        inspection = lease.batch.inspection
        staged = self._staged.pop(inspection.pk, None)
        if staged is None:
            environment = self._environment(inspection.version)
            worlds = {
                task: self._world(environment, task, document)
                for task, document in inspection.worlds.items()
            }
            staged = Staged(
                environment,
                worlds,
                TrialRunner(
                    environment,
                    worlds,
                    self.sandbox(),
                    BatchStore({}),
                    self._home(),
                    fork_server=settings.QH_FORK_SERVER == "on",
                ),
            )
        self._staged[inspection.pk] = staged
        while len(self._staged) > AT_HAND:
            self._staged.popitem(last=False)[1].runner.close()
        return staged

    def _world(self, environment: Environment, task_id: str, document: Mapping[str, Any]) -> World:
        """Find a world on this host, or build it here: another worker may have prepared it."""
        found = locate_world(document, self._home())
        if found is not None:
            return found
        task = next((task for task in environment.tasks if task.id == task_id), None)
        try:
            built = prepare_world(environment, self.sandbox(), self._home(), task=task)
        except SandboxUnavailableError as error:
            raise CannotHereError(f"No sandbox works on this worker: {error.message}") from error
        if built.status != "ready":
            raise CannotHereError(f"The world cannot be built on this worker: {built.reason}")
        if built.digest != document["digest"]:
            raise CannotHereError(
                "The world comes out different on this worker: "
                f"{_difference(world_from_json(document), built) or 'its host files differ'}."
            )
        return built

    def _refuse(self, lease: Lease, error: CannotHereError) -> None:
        logger.warning(
            "cannot_here", extra={"fields": {"batch": lease.batch.pk, "why": error.message}}
        )
        self.reset()
        try:
            lease_refuse(lease, self.fits.offer.session, error.message)
        except LeaseLostError:
            return
        tickets_send(1)  # Another worker must hear of it.

    def _environment(self, version: EnvironmentVersion) -> Environment:
        name = (version.pk, version.parsed_sha256)  # Labels may have been corrected meanwhile.
        found = self._environments.pop(name, None)
        if found is None or (found.root is not None and not found.root.exists()):
            found = version_environment(version)
        self._environments[name] = found
        while len(self._environments) > AT_HAND:
            self._environments.popitem(last=False)
        return found

    @staticmethod
    def _home() -> Path:
        home: Path = settings.QH_HOME
        return home


def _difference(was: World, made: World) -> str:
    """Return what differs between a world and its copy, as far as their documents say."""
    short = [
        f"{name} is {str(getattr(made, name))[:80]!r}, not {str(getattr(was, name))[:80]!r}"
        for name in ("provider", "python", "base", "files", "layer", "workdir", "user")
        if getattr(made, name) != getattr(was, name)
    ]
    return ", ".join([*short, *(["env differs"] if made.env != was.env else [])])
