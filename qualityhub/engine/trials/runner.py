"""Runs trials in their worlds, through a store that knows what was already run."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from qualityhub.engine.environments.model import Environment
from qualityhub.engine.environments.staging import stage_folder, stage_shared
from qualityhub.engine.errors import MachineryError, QualityHubError
from qualityhub.engine.interrupts import held
from qualityhub.engine.sandbox.owners import label
from qualityhub.engine.sandbox.port import MIB, Command, Limits, Mount, Sandbox
from qualityhub.engine.sandbox.props import clock_library, locales
from qualityhub.engine.sandbox.store import pin
from qualityhub.engine.trials.drivers import DRIVERS
from qualityhub.engine.trials.drivers.changes import refuse_changes
from qualityhub.engine.trials.drivers.task import COLLECT, OUT
from qualityhub.engine.trials.evidence import result_of
from qualityhub.engine.trials.memory import return_large_blocks
from qualityhub.engine.trials.model import Observation, Trial, TrialResult, World
from qualityhub.engine.trials.servers import ServerPool, enabled, kind_of, modules_of
from qualityhub.engine.trials.store import TrialStore
from qualityhub.engine.trials.variations import (
    Props,
    change_command,
    payload_words,
    refused_changes,
)
from qualityhub.engine.trials.worlds import world_command, world_python

PROGRAMS = Path(__file__).parent / "programs"
# How often a signal that came in, and threads that are to end, are looked for.
_LOOK_S = 0.2


@cache
def program_digest() -> str:
    """Return the digest of the in-sandbox programs; part of every trial's world."""
    state = hashlib.sha256()
    for path in sorted(PROGRAMS.rglob("*.*")):
        if path.suffix in {".py", ".sh"}:
            state.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return state.hexdigest()[:16]


def world_digests(worlds: Mapping[str, World]) -> dict[str, str]:
    """Return what the drivers put into trial keys: world and program version by task id."""
    return {task: f"{world.digest}/{program_digest()}" for task, world in worlds.items()}


class TrialRunner:
    """Runs the trials of one environment on this host.

    Args:
        environment: The parsed package; its files are on this host.
        worlds: Prepared worlds by task id.
        sandbox: The provider.
        store: Where known results are.
        home: Data folder; staged files go below it and are removed by :meth:`close`.
        fork_server: Whether trials may share what is loaded once; None asks the environment
            variable.
    """

    def __init__(
        self,
        environment: Environment,
        worlds: Mapping[str, World],
        sandbox: Sandbox,
        store: TrialStore,
        home: Path,
        *,
        fork_server: bool | None = None,
    ) -> None:
        return_large_blocks()
        self.environment = environment
        self.worlds = worlds
        self.sandbox = sandbox
        self.store = store
        staging = home / "staging"
        staging.mkdir(parents=True, exist_ok=True)
        self._stage = Path(tempfile.mkdtemp(dir=staging, prefix=f"run-{label()}-"))
        self._held = pin(self._stage)
        # The sandbox user must be able to enter; the parent decides who else may.
        self._stage.chmod(0o755)
        self._staged: dict[str, Path] = {}
        programs = self._stage / "programs"
        shutil.copytree(PROGRAMS, programs, ignore=shutil.ignore_patterns("__pycache__"))
        self._programs = programs
        self._home = home
        self._stopped = False
        self._tasks = {task.id: task for task in environment.tasks}
        allowed = enabled() if fork_server is None else fork_server
        self._servers = ServerPool(sandbox, 2 * cores()) if allowed else None
        self._modules: dict[str, tuple[str, ...]] = {}

    def stop(self, running: Collection[Future[TrialResult]]) -> None:
        """End what runs and try nothing a second time; returns once all of it is over.

        A thread that was about to start its trial starts the sandbox anew: it is ended again.
        What no thread has begun never runs. May be called again.
        """
        self._stopped = True
        # One that is cancelled before its turn never counts as done where it is waited for.
        begun = [future for future in running if not future.cancel()]
        if self._servers is not None:
            self._servers.close()
        while True:
            self.sandbox.close()
            if not wait(begun, timeout=_LOOK_S).not_done:
                return

    def close(self) -> None:
        """End the fork servers and remove the staged files."""
        with held():
            if self._servers is not None:
                self._servers.close()
            shutil.rmtree(self._stage, ignore_errors=True)
            if self._held is not None:
                self._held.release()

    def prepare(self, trials: Iterable[Trial]) -> list[Trial]:
        """Stage every folder that trials mount, before threads share them.

        Returns the trials with those together that a fork server can run in a row.

        Raises:
            UnreadablePackageError: A file is no longer what was read.
        """
        together: dict[Hashable | None, list[Trial]] = {}
        for trial in trials:
            self._mounts(trial)
            together.setdefault(self._kind(trial), []).append(trial)
        if self._servers is not None:
            for kind, same in together.items():
                self._servers.expect([kind] * len(same))
        return [trial for same in together.values() for trial in same]

    def _kind(self, trial: Trial) -> Hashable | None:
        if self._servers is None or self._world(trial).base:
            return None
        return kind_of(trial)

    def known(self, trial: Trial) -> TrialResult | None:
        """Return the trial's result where the store has it."""
        known = self.store.get(trial.key)
        # A key says what ran, not what was asked of it: both must match.
        if known is None or len(known.observations) != len(trial.asks):
            return None
        return replace(known, cached=True)

    def run(self, trial: Trial) -> TrialResult:
        """Return the trial's result, from the store or by running it.

        Our own failure is tried once more and then comes back as observations with the outcome
        ``machinery``, which no store keeps.
        """
        known = self.known(trial)
        if known is not None:
            if self._servers is not None:
                self._servers.known(self._kind(trial))
            return known
        try:
            result = self._run(trial, self._kind(trial))
        except QualityHubError as error:
            if self._stopped:
                return _failed(trial, error)
            try:
                result = self._run(trial, None)
            except QualityHubError as error:
                return _failed(trial, error)
        self.store.put(result)
        return result

    def _run(self, trial: Trial, kind: Hashable | None) -> TrialResult:
        """Run a trial, on a fork server where its kind names one that can."""
        self._refuse_stopped()
        nonce = secrets.token_hex(16)
        command = self._command(trial, nonce)
        completed = None
        if kind is not None and self._servers is not None:
            completed = self._servers.run(kind, command, self._preload(trial.program))
        served = completed is not None
        if completed is None:
            self._refuse_stopped()
            completed = self.sandbox.run(command)
        observations = DRIVERS[self.environment.family].observe(trial, completed, nonce)
        refused = refused_changes(trial.variation, self._props(trial))
        observed = tuple(
            replace(refuse_changes(seen, refused), served=served) for seen in observations
        )
        return result_of(trial.key, observed, completed, nonce, self.store.keep)

    def _refuse_stopped(self) -> None:
        if self._stopped:
            raise MachineryError("trial.stopped", "the run was stopped before this trial")

    def _preload(self, program: str) -> tuple[str, ...]:
        if program not in self._modules:
            self._modules[program] = modules_of(self.environment, PROGRAMS / f"{program}.py")
        return self._modules[program]

    def _props(self, trial: Trial) -> Props:
        """Return what this host can lend to a changed world; a baseline needs nothing."""
        variation = trial.variation
        if not variation.changes():
            return Props()
        return Props(
            clock=clock_library() if variation.clock else None,
            locale=locales(self._home, variation.locale) if variation.locale else None,
            cpus=cores(),
        )

    def _command(self, trial: Trial, nonce: str) -> Command:
        """Return a trial's command: all that is world-like in its fields, the rest on stdin."""
        props = self._props(trial)
        plain = self._plain_command(trial, nonce, refused_changes(trial.variation, props))
        return change_command(plain, trial.variation, self.environment.family, props)

    def _plain_command(self, trial: Trial, nonce: str, refused: Mapping[str, str]) -> Command:
        world = self._world(trial)
        mounts = self._mounts(trial)
        env = {"PYTHONHASHSEED": str(trial.variation.hash_seed)}
        if trial.program == "task":
            return self._task_command(trial, world, mounts, env)
        payload = {**trial.payload, "nonce": nonce}
        words = payload_words(trial.variation, refused, time.time())
        if words:
            payload["variation"] = words
        command = world_command(
            world,
            (world_python(world), "-B", f"/qh/programs/{trial.program}.py"),
            extra_mounts=mounts,
            env=env,
            cwd="/tmp",  # noqa: S108 - a folder of the sandbox
            stdin=json.dumps(payload).encode(),
            limits=Limits(
                wall_s=trial.wall_s,
                cpu_s=int(trial.wall_s) + 5,
                memory_bytes=2048 * MIB,
                output_bytes=16 * MIB,
            ),
        )
        return replace(command, first=True)

    def _task_command(
        self, trial: Trial, world: World, mounts: tuple[Mount, ...], env: dict[str, str]
    ) -> Command:
        payload: Mapping[str, Any] = trial.payload
        workdir = payload["workdir"] or world.workdir or "/app"
        memory = payload.get("memory_mb")
        return world_command(
            world,
            ("/bin/sh", "/qh/programs/task.sh", workdir, str(payload["probe"])),
            extra_mounts=(*mounts, Mount("/logs", mode="scratch"), Mount(OUT, mode="scratch")),
            env={
                **env,
                "QH_SOLVE_ENV": payload["solve_env"],
                "QH_TEST_ENV": payload["test_env"],
            },
            cwd="/",
            collect=COLLECT,
            limits=Limits(
                wall_s=trial.wall_s,
                cpu_s=int(trial.wall_s) + 5,
                memory_bytes=int(memory) * MIB if memory else 2048 * MIB,
                disk_bytes=2048 * MIB,
                files=500_000,
                pids=1024,
            ),
        )

    def _world(self, trial: Trial) -> World:
        task = trial.asks[0].task
        return self.worlds.get(task) or self.worlds[""]

    def _mounts(self, trial: Trial) -> tuple[Mount, ...]:
        mounts = [Mount("/qh/programs", self._programs)]
        for target, digest in trial.trees.items():
            source = self._staged.get(target + digest)
            if source is None:
                source = self._stage / str(len(self._staged))
                source.mkdir()
                self._fill(trial, target, source)
                self._staged[target + digest] = source
            mounts.append(Mount(target, source, "overlay"))
            if target == "/tests" and "/solution" in trial.trees:
                # The verifier runs from what the reference could not write to.
                mounts.append(Mount("/qh/tests", source))
        return tuple(mounts)

    def _fill(self, trial: Trial, target: str, folder: Path) -> None:
        if target == "/qh/env":
            stage_shared(self.environment, folder)
            return
        task = self._tasks[trial.asks[0].task]
        key = {"/tests": "tests", "/solution": "solution"}[target]
        stage_folder(self.environment, str(task.data[key]), folder)


def run_trials(
    runner: TrialRunner,
    trials: list[Trial],
    jobs: int,
    on_result: Callable[[Trial, TrialResult], None],
    until: float | None = None,
) -> None:
    """Run trials on ``jobs`` threads; results arrive in the caller's thread, in any order.

    At most a few trials per thread are in flight, so that an interrupt ends soon; what a signal's
    handler raises comes out between two results. After ``until``, seconds of the monotonic clock,
    no trial is started any more.
    """
    left = []
    for trial in trials:
        known = runner.known(trial)
        if known is None:
            left.append(trial)
        else:
            on_result(trial, known)
    if not left:
        return
    todo: Iterator[Trial] = iter(runner.prepare(left))
    with held() as signals, ThreadPoolExecutor(jobs, thread_name_prefix="trial") as pool:
        running: dict[Future[TrialResult], Trial] = {}
        try:
            while True:
                signals.deliver()
                if until is not None and time.monotonic() > until:
                    todo = iter(())
                for trial in islice(todo, 2 * jobs - len(running)):
                    running[pool.submit(runner.run, trial)] = trial
                if not running:
                    return
                done, _ = wait(running, timeout=_LOOK_S, return_when=FIRST_COMPLETED)
                for future in done:
                    on_result(running.pop(future), future.result())
        except BaseException:
            runner.stop(running)
            raise


def cores() -> int:
    """Return how many CPUs this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _failed(trial: Trial, error: QualityHubError) -> TrialResult:
    observation = Observation("machinery", detail=f"{error.code}: {error.message}", trial=trial.key)
    return TrialResult(trial.key, (observation,) * len(trial.asks), seconds=0.0)
