"""Data set and reward function: tasks share a process start, each case has a child of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from qualityhub.engine.environments.model import Environment
from qualityhub.engine.sandbox.port import Completed
from qualityhub.engine.trials.drivers.base import Driver, read_answers, world_of
from qualityhub.engine.trials.model import Ask, Observation, Trial
from qualityhub.engine.trials.probes import MALFORMED, MALFORMED_PREFIX, ORACLE

CASE_S = 5.0
CHUNK = 20
"""Tasks per trial: a few seconds of work, one import of the scorer."""


class ScorerDriver(Driver):
    """Drives scorer folders and generated data sets."""

    def plan(
        self,
        environment: Environment,
        worlds: Mapping[str, str],
        asks: Sequence[Ask],
        generation: int,
    ) -> list[Trial]:
        """Return one trial per (chunk of tasks, variation, repeat), cold ones apart."""
        place = {task.id: index for index, task in enumerate(environment.tasks)}
        data = {task.id: task.data for task in environment.tasks}
        generated = "file" not in environment.entry

        def chunk(ask: Ask) -> tuple[int, Any, int, bool]:
            return place[ask.task] // CHUNK, ask.variation, ask.repeat, ask.cold

        trials = []
        for (_, variation, repeat, cold), group in groupby(sorted(asks, key=chunk), key=chunk):
            chosen = tuple(sorted(group, key=lambda ask: (place[ask.task], ask.probe)))
            ids = list(dict.fromkeys(ask.task for ask in chosen))
            payload: dict[str, Any] = {
                "entry": dict(environment.entry),
                "case_timeout_s": CASE_S,
                "cases": [
                    _generated_case(ask, data[ask.task])
                    if generated
                    else {
                        "probe": ask.probe,
                        "row": ids.index(ask.task),
                        "completion": _completion(ask, data[ask.task]),
                    }
                    for ask in chosen
                ],
            }
            if not generated:
                payload["rows"] = [
                    {key: data[task].get(key) for key in ("prompt", "answer", "info")}
                    for task in ids
                ]
            trials.append(
                Trial(
                    program="scorer",
                    asks=chosen,
                    payload=payload,
                    trees={"/qh/env": environment.shared} if not generated else {},
                    variation=variation,
                    repeat=repeat,
                    cold=cold,
                    generation=generation,
                    world=world_of(worlds, ids[0]),
                    wall_s=min(600.0, 90.0 + 2.0 * len(chosen)),
                )
            )
        return trials

    def observe(self, trial: Trial, completed: Completed, nonce: str) -> tuple[Observation, ...]:
        """Read one answer line per case."""
        lacking = [
            index
            for index, case in enumerate(trial.payload["cases"])
            if case.get("oracle") or ("row" in case and case["completion"] is None)
        ]
        return read_answers(trial, completed, nonce, lacking)


def _completion(ask: Ask, row: Mapping[str, Any]) -> str | None:
    if ask.probe == ORACLE:
        answer = row["correct"] if "correct" in row else row["answer"]
        if answer is None or isinstance(answer, str):
            return answer
        return json.dumps(answer, ensure_ascii=False)
    return _scripted(ask.probe)


def _generated_case(ask: Ask, data: Mapping[str, Any]) -> dict[str, Any]:
    oracle = ask.probe == ORACLE
    return {
        "probe": ask.probe,
        "index": data["index"],
        "oracle": oracle,
        "completion": None if oracle else _scripted(ask.probe),
    }


def _scripted(probe: str) -> str:
    if probe.startswith(MALFORMED_PREFIX):
        return MALFORMED[probe.removeprefix(MALFORMED_PREFIX)]
    return ""
