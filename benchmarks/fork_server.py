"""Trials per second with fork servers against one cold sandbox per trial, same trials, one run.

    python benchmarks/fork_server.py [--data FOLDER] [--jobs N] [--part SHARE]

Two environments: HumanEval (``human-eval/HumanEval.jsonl.gz`` below FOLDER, by default what
QH_TEST_DATA names; a made file of the same shape without it), and a small one that imports numpy
and gymnasium. Every trial that the first round of an inspection asks for runs in both ways, and
what was seen must be equal. Targets: 4 times and 10 times.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from qualityhub.engine.environments.reader import read_environment
from qualityhub.engine.inspect import prepare_worlds
from qualityhub.engine.policy import AdmissionPolicy
from qualityhub.engine.rules.advance import Inspection, advance
from qualityhub.engine.sandbox.bwrap import BwrapSandbox
from qualityhub.engine.trials.drivers import plan_trials
from qualityhub.engine.trials.model import Ask, Observation, Trial, TrialResult
from qualityhub.engine.trials.runner import TrialRunner, cores, run_trials, world_digests
from qualityhub.engine.trials.store import NullStore

SMALL = '''"""A walk on a line; what it imports is heavy, what it does is not."""

import gymnasium
import numpy as np
from gymnasium import spaces


class Walk(gymnasium.Env):
    """Step left or right until one of the ends."""

    observation_space = spaces.Box(-10, 10, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = int(self.np_random.integers(-3, 4))
        return np.array([self.place], np.float32), {}

    def step(self, action):
        self.place += 1 if action else -1
        done = abs(self.place) >= 5
        return np.array([self.place], np.float32), float(done), done, False, {}
'''
TURNS = 5
MANIFEST = """[environment]
name = "walk"
entry = "walk.py:Walk"
dependencies = ["numpy", "gymnasium"]
"""


def humaneval(data: Path | None, folder: Path) -> Path:
    path = folder / "HumanEval.jsonl"
    given = data / "human-eval" / "HumanEval.jsonl.gz" if data is not None else None
    if given is not None and given.exists():
        path.write_bytes(gzip.decompress(given.read_bytes()))
        return path
    rows = (
        {
            "task_id": f"bench/{i}",
            "prompt": f"def add_{i}(x):\n",
            "entry_point": f"add_{i}",
            "canonical_solution": f"    return x + {i}\n",
            "test": f"def check(candidate):\n    assert candidate(1) == {i + 1}\n",
        }
        for i in range(164)
    )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def walk(folder: Path) -> Path:
    place = folder / "walk"
    place.mkdir()
    (place / "walk.py").write_text(SMALL)
    (place / "qualityhub.toml").write_text(MANIFEST)
    return place


class Bench:
    """Runs the same trials of one source in both ways."""

    def __init__(self, source: Path, home: Path, jobs: int) -> None:
        self.environment = read_environment(str(source))
        self.sandbox = BwrapSandbox(home)
        self.home, self.jobs = home, jobs
        self.worlds = prepare_worlds(self.environment, self.sandbox, home, print)
        for world in self.worlds.values():
            if world.status != "ready":
                raise SystemExit(f"no world: {world.reason} {world.log}")
        inspection = Inspection(
            self.environment, self.worlds, AdmissionPolicy(), str(source), (), ()
        )
        self.asks = advance(inspection, {}).asks

    def trials(self, asks: Sequence[Ask]) -> list[Trial]:
        """Return what answers these asks."""
        return plan_trials(self.environment, world_digests(self.worlds), list(asks), 0)

    def runner(self, *, warm: bool) -> TrialRunner:
        """Return a runner that keeps nothing."""
        return TrialRunner(
            self.environment, self.worlds, self.sandbox, NullStore(), self.home, fork_server=warm
        )

    def run(self, runner: TrialRunner, trials: list[Trial], seen: dict[Ask, Observation]) -> float:
        """Run trials, note what was seen, and return the seconds."""

        def on_result(trial: Trial, result: TrialResult) -> None:
            seen.update(zip(trial.asks, result.observations, strict=True))

        started = time.perf_counter()
        run_trials(runner, trials, self.jobs, on_result)
        return time.perf_counter() - started

    def close(self) -> None:
        """End the sandbox."""
        self.sandbox.close()


def told(seen: Observation) -> tuple[object, ...]:
    """Return what must not depend on how a trial was run; a traceback names other frames."""
    return seen.outcome, seen.reward, seen.reward_type, json.dumps(dict(seen.facts), sort_keys=True)


def compare(name: str, bench: Bench, share: float, target: float, least: int) -> bool:
    asks = bench.asks
    if len(asks) < least:
        # Too few to measure: the same again, as repeats.
        more = range(1, -(-least // len(asks)) + 1)
        asks = [*asks, *(replace(ask, repeat=ask.repeat + 100 * n) for n in more for ask in asks)]
    trials = bench.trials(asks)
    cold_s = warm_s = 0.0
    cold_runner, warm_runner = bench.runner(warm=False), bench.runner(warm=True)
    seen_cold: dict[Ask, Observation] = {}
    seen_warm: dict[Ask, Observation] = {}
    cold_trials = 0
    # In turns, so that whatever else this machine does meets both.
    size = -(-len(trials) // TURNS)
    for first in range(0, len(trials), size):
        turn = trials[first : first + size]
        part = turn[:: max(1, round(1 / share))]
        cold_trials += len(part)
        cold_s += bench.run(cold_runner, part, seen_cold)
        warm_s += bench.run(warm_runner, turn, seen_warm)
    cold_runner.close()
    warm_runner.close()
    cold, warm = cold_trials / cold_s, len(trials) / warm_s
    served = sum(item.served for item in seen_warm.values())
    differ = [ask for ask, item in seen_cold.items() if told(item) != told(seen_warm[ask])]
    ratio = warm / cold
    met = ratio >= target and not differ
    print(
        f"{name}: cold {cold:.1f}/s ({cold_trials} trials), warm {warm:.1f}/s ({len(trials)} "
        f"trials, {served} of {len(seen_warm)} answers served), {len(differ)} differ; "
        f"{ratio:.1f}x (target {target:.0f}x, {'met' if met else 'missed'})"
    )
    for ask in differ[:5]:
        print("  ", ask, told(seen_cold[ask]), told(seen_warm[ask]))
    return met


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default=os.environ.get("QH_TEST_DATA"))
    parser.add_argument("--jobs", type=int, default=cores())
    parser.add_argument("--part", type=float, default=1.0, help="share of trials that run cold")
    parser.add_argument("--home", help="data folder to reuse; a new one without it")
    parser.add_argument("--only", choices=["humaneval", "imports"])
    given = parser.parse_args()
    data = Path(given.data) if given.data else None
    good = True
    with tempfile.TemporaryDirectory(prefix="qh-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        home = Path(given.home) if given.home else folder / "home"
        for word, source, target, least in (
            ("humaneval", humaneval(data, folder), 4.0, 984),
            ("imports", walk(folder), 10.0, 600),
        ):
            if given.only in {None, word}:
                bench = Bench(source, home, given.jobs)
                good = compare(word, bench, given.part, target, least) and good
                bench.close()
    raise SystemExit(not good)


if __name__ == "__main__":
    main()
