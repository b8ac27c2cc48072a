"""Gate of 300 domains x 500 tasks x 8 + 8 rollouts from rollups; target: at most one second.

Run: python benchmarks/gate.py
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np

from qualityhub.engine.gate.decide import decide
from qualityhub.engine.gate.policy import GatePolicy
from qualityhub.engine.gate.rollups import TaskRollup

DOMAINS, TASKS, ROLLOUTS = 300, 500, 8
TARGET_SECONDS = 1.0
REPEATS = 5


def side(rng: np.random.Generator, chances: np.ndarray) -> list[TaskRollup]:
    passes = rng.binomial(ROLLOUTS, chances).tolist()
    return [
        TaskRollup(
            task=f"task-{index}",
            task_digest=f"qh1:{index:064x}",
            n=ROLLOUTS,
            passes=solved,
            sum=float(solved),
            sumsq=float(solved),
            input_tokens=ROLLOUTS * 1200 + index,
            input_tokens_n=ROLLOUTS,
            output_tokens=ROLLOUTS * 300 + index,
            output_tokens_n=ROLLOUTS,
            cost=0.01 * ROLLOUTS,
            cost_n=ROLLOUTS,
            latency_ms=900.5 * ROLLOUTS + index,
            latency_ms_n=ROLLOUTS,
            turns=4 * ROLLOUTS,
            turns_n=ROLLOUTS,
        )
        for index, solved in enumerate(passes)
    ]


def main() -> int:
    rng = np.random.default_rng(0)
    baseline, candidate = {}, {}
    for index in range(DOMAINS):
        chances = rng.beta(0.6, 0.4, TASKS)
        baseline[f"domain-{index:03d}"] = side(rng, chances)
        candidate[f"domain-{index:03d}"] = side(rng, chances * (0.9 if index == 7 else 1.0))
    seconds, cpu = [], []
    for _ in range(REPEATS):
        start, spent = time.perf_counter(), time.process_time()
        decision = decide(GatePolicy(), baseline, candidate)
        json.dumps(decision.as_json())
        seconds.append(time.perf_counter() - start)
        cpu.append(time.process_time() - spent)
    best = sorted(seconds)[REPEATS // 2]
    rollouts = 2 * DOMAINS * TASKS * ROLLOUTS
    print(
        f"gate of {rollouts:,} rollouts from {2 * DOMAINS * TASKS:,} rollups: {best:.2f} s "
        f"(median of {REPEATS}; {min(cpu):.2f} s of CPU), target {TARGET_SECONDS:g} s, "
        f"ratio {TARGET_SECONDS / best:.2f}x; verdict {decision.verdict}"
    )
    return 0 if best <= TARGET_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
