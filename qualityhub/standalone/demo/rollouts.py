"""Rollouts of the demo's two checkpoints, drawn from a seed: finance really got worse.

Every task has a pass probability drawn once; both checkpoints attempt every task with rollouts
of their own. In ``finance`` the candidate loses more than half of its chance on one task in six
(about 6 points of the domain); elsewhere it gains about one point.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

SEED = 20_260_301
TASKS = 400
ATTEMPTS = 8
DOMAINS = ("3d", "code", "finance", "math", "terminal")
REGRESSED = "finance"
BASELINE = "base-2026-02"
CANDIDATE = "rl-2026-03"


def demo_rows(checkpoint: str) -> Iterator[dict[str, Any]]:
    """Yield rollout rows (DESIGN's row contract) of one checkpoint, domain by domain.

    Args:
        checkpoint: :data:`BASELINE` or :data:`CANDIDATE`.
    """
    for place, domain in enumerate(DOMAINS):
        yield from _domain_rows(checkpoint, domain, place)


def _domain_rows(checkpoint: str, domain: str, place: int) -> Iterator[dict[str, Any]]:
    candidate = checkpoint == CANDIDATE
    shape = np.random.default_rng([SEED, place])
    chance = shape.beta(0.6, 0.4, TASKS)
    hit = shape.random(TASKS) < 1 / 6
    if candidate and domain == REGRESSED:
        chance = np.where(hit, chance * 0.4, chance)
    elif candidate:
        chance = chance + 0.05 * chance * (1 - chance) * 2
    draw = np.random.default_rng([SEED, place, 1 + candidate])
    passed = draw.random((TASKS, ATTEMPTS)) < chance[:, None]
    latency = draw.gamma(6.0, 900.0 if not candidate else 840.0, (TASKS, ATTEMPTS))
    tokens = draw.poisson(1400, (TASKS, ATTEMPTS))
    for task in range(TASKS):
        for attempt in range(ATTEMPTS):
            yield {
                "domain": domain,
                "task": f"{domain}/{task:04d}",
                "attempt": attempt,
                "reward": float(passed[task, attempt]),
                "latency_ms": round(float(latency[task, attempt]), 1),
                "output_tokens": int(tokens[task, attempt]),
                "trace_ref": f"traces/{checkpoint}/{domain}/{task:04d}/{attempt}",
            }
