"""Harbor tasks: reference script, then verifier, in one world; the reward is a file."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from qualityhub.engine.environments.model import Environment
from qualityhub.engine.errors import MachineryError
from qualityhub.engine.sandbox.port import Completed
from qualityhub.engine.trials.drivers.base import Driver, tail, world_of
from qualityhub.engine.trials.drivers.changes import REVERSED, task_changes, with_changes
from qualityhub.engine.trials.model import Ask, Observation, Trial
from qualityhub.engine.trials.probes import ORACLE

REWARD_TXT = "/logs/verifier/reward.txt"
REWARD_JSON = "/logs/verifier/reward.json"
TEST_REPORTS = ("/logs/verifier/ctrf.json", "/logs/verifier/junit.xml")
"""Where verifiers that follow Harbor's examples leave what each test said; evidence alone."""
OUT = "/qh/out"
COLLECT = (
    REWARD_TXT,
    REWARD_JSON,
    *TEST_REPORTS,
    f"{OUT}/solve.log",
    f"{OUT}/solve.exit",
    f"{OUT}/test.log",
    f"{OUT}/test.exit",
    f"{OUT}/forged",
    REVERSED,
)
NO_WORKDIR = 90
OFFLINE = re.compile(
    r"Could not resolve host|Temporary failure in name resolution|Name or service not known"
    r"|Network is unreachable|Failed to establish a new connection|Could not resolve '"
    r"|getaddrinfo (EAI_AGAIN|ENOTFOUND)|dns error|error sending request for url"
)
MISSING = re.compile(r"ModuleNotFoundError: No module named '([A-Za-z_][\w]*)")


class TaskDriver(Driver):
    """Drives Harbor task directories."""

    def plan(
        self,
        environment: Environment,
        worlds: Mapping[str, str],
        asks: Sequence[Ask],
        generation: int,
    ) -> list[Trial]:
        """Return one trial per ask: nothing of one run is seen by the next."""
        tasks = {task.id: task for task in environment.tasks}
        trials = []
        for ask in asks:
            task = tasks[ask.task]
            data = task.data
            oracle = ask.probe == ORACLE
            trees = {"/tests": task.layers["verifier"]}
            if oracle and "solution" in task.layers:
                trees["/solution"] = task.layers["solution"]
            trials.append(
                Trial(
                    program="task",
                    asks=(ask,),
                    payload={
                        "probe": ask.probe,
                        "task": ask.task,
                        "has_solution": bool(data.get("solution")),
                        "workdir": data.get("workdir") or "",
                        "solve_env": assignments(data.get("solution_env") or {}),
                        "test_env": assignments(data.get("verifier_env") or {}),
                        "memory_mb": data.get("memory_mb"),
                    },
                    trees=trees,
                    variation=ask.variation,
                    repeat=ask.repeat,
                    cold=ask.cold,
                    generation=generation,
                    world=world_of(worlds, ask.task),
                    wall_s=_wall(data, oracle=oracle),
                )
            )
        return trials

    def observe(self, trial: Trial, completed: Completed, nonce: str) -> tuple[Observation, ...]:
        """Read the reward file, with Harbor's precedence: ``reward.json`` before ``reward.txt``."""
        del nonce
        # Once a phase runs, foreign code shares the world and can end with any status.
        started = any(f"{OUT}/{name}.log" in completed.collected for name in ("solve", "test"))
        ours = completed.exit_code in {126, 127, NO_WORKDIR} and not completed.timed_out
        if ours and not started:
            raise MachineryError(
                "trial.program_failed",
                f"The task program ended with status {completed.exit_code}: "
                f"{tail(completed.stderr)}",
                "This is a fault of ours or of this host; it says nothing about the environment.",
            )
        said = task_changes(trial.variation, completed)
        seen = observe_task(trial, completed)
        return (with_changes(seen, trial.variation, said, said["escaped"]),)


def observe_task(trial: Trial, completed: Completed) -> Observation:
    """Return what the collected files say."""
    files = completed.collected
    logs = {
        name: tail(files.get(f"{OUT}/{name}.log", b""), 1200)
        for name in ("solve", "test")
        if f"{OUT}/{name}.log" in files
    }
    facts: dict[str, Any] = {
        "solve_exit": _status(files.get(f"{OUT}/solve.exit")),
        "test_exit": _status(files.get(f"{OUT}/test.exit")),
        "solve_log": logs.get("solve", ""),
        "test_log": logs.get("test", ""),
    }
    # A log is a hint only: the import may have been caught, the module may be the task itself.
    missing = MISSING.search(logs.get("test", "")) or MISSING.search(logs.get("solve", ""))
    if missing:
        facts["missing_module"] = missing.group(1)
    if any(
        OFFLINE.search(files.get(f"{OUT}/{name}.log", b"").decode("utf-8", "replace"))
        for name in ("solve", "test")
    ):
        facts["offline"] = True
    detail = logs.get("test") or logs.get("solve") or ""
    if completed.timed_out:
        stage = "verifier" if facts["test_exit"] is None and "test" in logs else "reference"
        return Observation(
            "timeout", detail=f"the {stage} ran out of time\n{detail}", facts=facts, trial=trial.key
        )
    if facts["test_exit"] is None or completed.exit_code != 0:
        reason = "the memory limit" if completed.out_of_memory else "a limit or a signal"
        return Observation(
            "killed",
            detail=f"{reason} ended it before the verifier was done\n{detail}",
            facts=facts,
            trial=trial.key,
        )
    if f"{OUT}/forged" in files:
        facts["forged"] = True
    value, problem = read_reward(files)
    if files.get(f"{OUT}/forged", b"").strip() == b"after":
        problem = "a process that the reference left behind writes the reward"
    if problem:
        return Observation("no_reward", detail=f"{problem}\n{detail}", facts=facts, trial=trial.key)
    kind = "number" if isinstance(value, float) or value in {"nan", "inf", "-inf"} else "str"
    return Observation("reward", value, kind, detail=detail, facts=facts, trial=trial.key)


def read_reward(files: Mapping[str, bytes]) -> tuple[float | str, str]:
    """Return (reward, problem); the problem is empty when there is a reward.

    A JSON object of several numbers has the reward under ``reward``, else its mean.
    """
    if REWARD_JSON in files:
        try:
            document = json.loads(files[REWARD_JSON])
        except (ValueError, RecursionError):
            return 0.0, "reward.json is not JSON"
        if isinstance(document, dict) and document:
            value = document.get("reward")
            if value is None:
                numbers = [item for item in document.values() if isinstance(item, (int, float))]
                if len(numbers) != len(document):
                    return 0.0, "reward.json holds values that are no numbers"
                value = math.fsum(numbers) / len(numbers)
            return _number(value), ""
        return 0.0, "reward.json is not an object with a reward"
    if REWARD_TXT in files:
        text = files[REWARD_TXT].decode("utf-8", "replace").strip()
        return (_number(text), "") if text else (0.0, "reward.txt is empty")
    return 0.0, "the verifier wrote neither reward.txt nor reward.json"


def assignments(values: Mapping[str, Any]) -> str:
    """Return shell assignments, quoted; host variables named in them are not expanded."""
    return " ".join(f"{name}={shlex.quote(str(value))}" for name, value in sorted(values.items()))


def _number(value: object) -> float | str:
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return str(value)[:200]
    return number if math.isfinite(number) else repr(number)


def _status(data: bytes | None) -> int | None:
    try:
        return int(data) if data is not None else None
    except ValueError:
        return None


def _wall(data: Mapping[str, Any], *, oracle: bool) -> float:
    # Owners set limits on faster machines; a loaded host gets at least 60 s for the verifier.
    verifier = max(60.0, float(data.get("verifier_timeout_s") or 600.0))
    agent = float(data.get("agent_timeout_s") or 600.0) if oracle else 0.0
    return verifier + agent
