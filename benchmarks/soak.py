"""A day of trials in miniature: many thousands in a row, and nothing that grows.

    python benchmarks/soak.py [--trials 50000] [--jobs N] [--every 1000] [--seed 1] [--cold]

Quick answers, wrong ones, crashes, hangs, memory blow-ups, floods of output, files and processes
left behind, tasks with collected files: through the runner, with a store. Every so many trials it
looks at processes, threads, mounts, control groups, open files, memory and files of this process
and of what it started. After a warm-up a line is fitted through each; what it would gain over the
whole run must stay below its tolerance. Exits with 1 where something grows, where a trial came to
anything else than it should, or where our own parts failed.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType

from qualityhub.engine.environments.reader import read_environment
from qualityhub.engine.inspect import prepare_worlds
from qualityhub.engine.sandbox.bwrap import BwrapSandbox
from qualityhub.engine.trials.drivers import plan_trials
from qualityhub.engine.trials.model import Ask, Trial, TrialResult
from qualityhub.engine.trials.probes import ORACLE
from qualityhub.engine.trials.runner import TrialRunner, cores, run_trials, world_digests
from qualityhub.engine.trials.store import directory_store

KIB, MIB = 1024, 1024 * 1024


def _from_tests(name: str) -> ModuleType:
    place = Path(__file__).resolve().parents[1] / "tests/engine/sandbox" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, place)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


host = _from_tests("host")

# Name: (share of 10,000, body of the function, what it comes to).
FUNCTIONS = {
    "quick": (8600, "    return x + 1\n", "reward 1.0"),
    "wrong": (500, "    return x\n", "reward 0.0"),
    "raises": (200, "    raise ValueError(x)\n", "reward 0.0"),
    "crashes": (150, "    import os; os.abort()\n", "killed"),
    "leaves": (100, "    import os; os._exit(3)\n", "no_reward"),
    "writes": (
        100,
        "    for i in range(200): open('/tmp/f%d' % i, 'w').write('x' * 4096)\n    return x + 1\n",
        "reward 1.0",
    ),
    "opens": (
        50,
        "    global held; held = [open('/dev/null') for _ in range(900)]\n    return x + 1\n",
        "reward 1.0",
    ),
    "forks": (
        60,
        (
            "    import os, time\n    for _ in range(5):\n"
            "        if os.fork() == 0:\n            os.setsid()\n            time.sleep(60)\n"
            "    return x + 1\n"
        ),
        "reward 1.0",
    ),
    "blows up": (40, "    return len(bytearray(b'x') * (200 << 20))\n", "reward 0.0"),
    "floods": (
        40,
        "    import os\n    for _ in range(300): os.write(2, b'x' * 65536)\n    return x + 1\n",
        "reward 1.0",
    ),
    "hangs": (40, "    while True: pass\n", "timeout"),
    "stops all": (
        10,
        "    import os\n    try: os.kill(-1, 19)\n    except OSError: pass\n    while True: pass\n",
        "timeout",
    ),
}
"""What the functions of the first environment do."""
HANG_S, WALL_S = 0.3, 1.5
# Name: (share of 10,000, solution, what it comes to).
_REWARD = "echo 1 >/logs/verifier/reward.txt"
TASKS = {
    "collects": (70, f"seq 20000 >/app/done; {_REWARD}", "reward 1.0"),
    "takes memory": (20, "python3 -c \"bytearray(b'x') * (900 << 20)\"; sleep 0.2", "any"),
    "leaves a daemon": (20, "setsid sleep 600 >/dev/null 2>&1 & touch /app/done", "reward 1.0"),
}
"""What the references of the second do; its verifier asks whether ``/app/done`` is there."""


@dataclass(frozen=True, slots=True)
class Metric:
    """Something that must not grow.

    Attributes:
        name: What it is.
        tolerance: What it may gain over the whole run.
        unit: What a number of it is, for the table.
    """

    name: str
    tolerance: float
    unit: str = ""


METRICS = (
    Metric("processes", 0.5),
    Metric("threads", 0.5),
    Metric("mounts", 0.5),
    Metric("groups", 0.5),
    Metric("open files", 0.5),
    Metric("launcher files", 0.5),
    Metric("memory", 12.0, "MiB"),
    Metric("launcher memory", 3.0, "MiB"),
    Metric("data files", 0.5),
    Metric("data", 0.1, "MiB"),
    Metric("store per trial", 1.0, "KiB"),
)
_WARM_UP = 0.25


@dataclass(slots=True)
class Run:
    """What a run showed.

    Attributes:
        trials: How many were run.
        seconds: How long they took.
        samples: By metric, one number after each stretch.
        at: Trials run at each sample.
        info: By name, what is only told: it belongs to the whole host.
        ended: What each kind came to.
        unexpected: Sentences about trials that came to something else.
        served: How many a fork server ran.
    """

    trials: int = 0
    seconds: float = 0.0
    samples: dict[str, list[float]] = field(default_factory=dict)
    at: list[int] = field(default_factory=list)
    info: dict[str, list[float]] = field(default_factory=dict)
    ended: Counter[str] = field(default_factory=Counter)
    unexpected: list[str] = field(default_factory=list)
    served: int = 0

    def problems(self) -> list[str]:
        """Return what grew and what went wrong."""
        found = self.unexpected[:10]
        for metric in METRICS:
            gained = growth(self.at, self.samples[metric.name])
            if gained > metric.tolerance:
                found.append(
                    f"{metric.name} would grow by {gained:.2f} {metric.unit} over "
                    f"{self.at[-1]} trials, {metric.tolerance:g} are allowed"
                )
        return found


def growth(at: Sequence[int], values: Sequence[float]) -> float:
    """Return what a line through the samples after the warm-up gains over the whole run."""
    skipped = min(max(1, round(len(at) * _WARM_UP)), len(at) - 2)
    slope, _ = statistics.linear_regression(at[skipped:], values[skipped:])
    return slope * at[-1]


def _rows(folder: Path) -> Path:
    path = folder / "functions.jsonl"
    rows = (
        {
            "task_id": name,
            "prompt": "def work(x):\n",
            "entry_point": "work",
            "canonical_solution": body,
            "test": "def check(candidate):\n    assert candidate(1) == 2\n",
        }
        for name, (_, body, _) in FUNCTIONS.items()
    )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def _tasks(folder: Path) -> Path:
    verifier = (
        f"if [ -e /app/done ]; then {_REWARD}; else echo 0 >/logs/verifier/reward.txt; fi\n"
        "seq 5000\n"
    )
    for name, (_, solution, _) in TASKS.items():
        for path, text in {
            "task.toml": '[environment]\nworkdir = "/app"\nmemory_mb = 128\n',
            "instruction.md": "Make /app/done.\n",
            "environment/Dockerfile": "FROM python:3\nWORKDIR /app\n",
            "solution/solve.sh": f"#!/bin/bash\n{solution}\n",
            "tests/test.sh": f"#!/bin/bash\n{verifier}",
        }.items():
            place = folder / "tasks" / name.replace(" ", "-") / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
    return folder / "tasks"


class Soak:
    """Runs stretches of trials and looks around after each.

    Args:
        folder: For sources and the data folder; anyone may enter.
        jobs: Trials at once.
        seed: Of the order of kinds.
        cold: Whether every trial has a world of its own.
    """

    def __init__(self, folder: Path, *, jobs: int, seed: int = 1, cold: bool = False) -> None:
        self.home = folder / "home"
        self.jobs = jobs
        self.sandbox = BwrapSandbox(self.home)
        if not self.sandbox.capability().usable:
            raise SystemExit(f"bubblewrap: {self.sandbox.capability().reason}")
        # Images of tasks are rehearsed: no engine takes part in this.
        os.environ["DOCKER_HOST"] = f"unix://{folder}/none.sock"
        self.store = directory_store(self.home)
        self.runners = {
            part: self._runner(source, cold=cold)
            for part, source in (("function", _rows(folder)), ("task", _tasks(folder)))
        }
        # What trials mount is staged once, when it is first needed: before the first sample.
        self.runners["task"].prepare(self._plan("task", [(name, 0) for name in TASKS]))
        shares = {name: row[0] for name, row in (*FUNCTIONS.items(), *TASKS.items())}
        self._names, self._weights = list(shares), list(shares.values())
        self._random = random.Random(seed)
        self._number = 0
        self.run = Run()

    def _runner(self, source: Path, *, cold: bool) -> TrialRunner:
        environment = read_environment(str(source))
        worlds = prepare_worlds(environment, self.sandbox, self.home, lambda _text: None)
        for world in worlds.values():
            if world.status != "ready":
                raise SystemExit(f"no world: {world.reason}")
        return TrialRunner(
            environment, worlds, self.sandbox, self.store, self.home, fork_server=not cold
        )

    def stretch(self, count: int) -> None:
        """Run so many trials more, and take a sample."""
        started = time.perf_counter()
        chosen: dict[str, list[tuple[str, int]]] = {"function": [], "task": []}
        for name in self._random.choices(self._names, self._weights, k=count):
            self._number += 1
            chosen["task" if name in TASKS else "function"].append((name, self._number))
        for part, wanted in chosen.items():
            run_trials(self.runners[part], self._plan(part, wanted), self.jobs, self._on_result)
        self.run.seconds += time.perf_counter() - started
        self.run.trials += count
        self._sample()

    def _plan(self, part: str, wanted: list[tuple[str, int]]) -> list[Trial]:
        runner = self.runners[part]
        asks = [
            Ask(name.replace(" ", "-") if part == "task" else name, ORACLE, repeat=number)
            for name, number in wanted
        ]
        trials = plan_trials(runner.environment, world_digests(runner.worlds), asks)
        if part == "task":
            return trials
        return [
            replace(trial, payload={**trial.payload, "case_timeout_s": HANG_S}, wall_s=WALL_S)
            if trial.asks[0].task in {"hangs", "stops all"}
            else trial
            for trial in trials
        ]

    def _on_result(self, trial: Trial, result: TrialResult) -> None:
        name = trial.asks[0].task
        (seen,) = result.observations
        came_to = f"reward {seen.reward}" if seen.outcome == "reward" else seen.outcome
        self.run.ended[f"{name}: {came_to}"] += 1
        self.run.served += seen.served
        kind = FUNCTIONS.get(name) or TASKS[name.replace("-", " ")]
        if seen.outcome == "machinery" or came_to != kind[2] != "any":
            self.run.unexpected.append(f"{name} came to {came_to}: {seen.detail[-300:]}")

    def _sample(self) -> None:
        # Groups of the last trials are removed a moment after their end.
        launcher = self.sandbox._launcher.process.pid  # noqa: SLF001 - watched from outside
        end = time.monotonic() + 5
        seen = None
        while time.monotonic() < end and seen != (seen := _left(launcher)):
            time.sleep(0.25)
        gc.collect()
        rest, kept = _sizes(self.home)
        values = {
            "processes": len(host.below(launcher)),
            "threads": len(host.names("/proc/self/task")),
            "mounts": len(host.mounts("self")) + len(host.mounts(str(launcher))),
            "groups": len(host.groups(launcher)),
            "open files": len(host.names("/proc/self/fd")),
            "launcher files": len(host.names(f"/proc/{launcher}/fd")),
            "memory": host.resident() / MIB,
            "launcher memory": host.resident(launcher) / MIB,
            "data files": rest[0],
            "data": rest[1] / MIB,
            "store per trial": kept[1] / KIB / self.run.trials,
        }
        self.run.at.append(self.run.trials)
        for name, value in values.items():
            self.run.samples.setdefault(name, []).append(value)
        for name, value in _of_host().items():
            self.run.info.setdefault(name, []).append(value)

    def close(self) -> None:
        """End everything."""
        for runner in self.runners.values():
            runner.close()
        self.sandbox.close()


def _left(launcher: int) -> tuple[int, int]:
    return len(host.below(launcher)), len(host.groups(launcher))


def _sizes(home: Path) -> tuple[list[int], list[int]]:
    """Return (files, bytes) below the data folder, without and of what is kept of trials."""
    rest, kept = [0, 0], [0, 0]
    for here, _, files in os.walk(home):
        top = Path(here).relative_to(home).parts[:1]
        counted = kept if top and top[0] in {"trials", "blobs", "evidence"} else rest
        for name in files:
            counted[0] += 1
            counted[1] += (Path(here) / name).lstat().st_size
    return rest, kept


def _of_host() -> dict[str, float]:
    rows = dict(
        line.split(":", 1) for line in Path("/proc/meminfo").read_text("ascii").splitlines()
    )
    return {
        f"host {name} MiB": int(rows[name].split()[0]) / 1024
        for name in ("SUnreclaim", "KernelStack", "PageTables", "Shmem")
        if name in rows
    }


def soak(
    folder: Path,
    trials: int,
    every: int,
    *,
    jobs: int = 0,
    seed: int = 1,
    cold: bool = False,
    on_sample: Callable[[Run], None] = lambda _run: None,
) -> Run:
    """Run so many trials and return what was seen.

    Args:
        folder: For sources and the data folder; anyone may enter.
        trials: How many.
        every: Trials between two samples.
        jobs: At once; 0 for one per processor.
        seed: Of the order of kinds.
        cold: Whether every trial has a world of its own.
        on_sample: Called after each sample.
    """
    one = Soak(folder, jobs=jobs or cores(), seed=seed, cold=cold)
    try:
        while one.run.trials < trials:
            one.stretch(min(every, trials - one.run.trials))
            on_sample(one.run)
        return one.run
    finally:
        one.close()


def _line(run: Run) -> None:
    now = " ".join(f"{run.samples[metric.name][-1]:>9.1f}" for metric in METRICS)
    print(f"{run.trials:7d} {run.trials / run.seconds:6.0f}/s {now}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=50_000)
    parser.add_argument("--every", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cold", action="store_true", help="no fork servers")
    given = parser.parse_args()
    print(" " * 16 + " ".join(f"{metric.name[:9]:>9}" for metric in METRICS))
    with tempfile.TemporaryDirectory(prefix="qh-soak-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        run = soak(
            folder,
            given.trials,
            given.every,
            jobs=given.jobs,
            seed=given.seed,
            cold=given.cold,
            on_sample=_line,
        )
    print(f"{run.trials} trials in {run.seconds:.0f} s, {run.served} on fork servers")
    for name, count in sorted(run.ended.items()):
        print(f"  {count:6d}  {name}")
    print("growth over the run, and what is allowed")
    for metric in METRICS:
        gained = growth(run.at, run.samples[metric.name])
        print(f"  {gained:8.2f}  {metric.tolerance:6.1f}  {metric.name} {metric.unit}")
    for name, values in run.info.items():
        print(f"  {growth(run.at, values):8.2f}       -  {name} (everything on this host)")
    found = run.problems()
    for problem in found:
        print("problem:", problem)
    print("nothing grows" if not found else "failed")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
