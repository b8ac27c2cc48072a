"""What an inspection costs again: unchanged, and after one task changed.

    python benchmarks/inspection.py [SOURCE] [--jobs N] [--effort EFFORT]

SOURCE is a JSONL file; without it, it is a HumanEval-style file of 164 small tasks. Targets: the
second inspection is at least 50 times faster than the first and runs nothing; after a change of the
reference of one task, only trials of that task run.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from unittest import mock

from qualityhub.engine.inspect import InspectOptions, inspect_source
from qualityhub.engine.policy import EFFORTS, AdmissionPolicy
from qualityhub.engine.trials.model import Trial, TrialResult
from qualityhub.engine.trials.runner import TrialRunner

TARGET = 50.0


def made(folder: Path) -> Path:
    path = folder / "tasks.jsonl"
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


def changed(source: Path, folder: Path) -> tuple[Path, str]:
    """A copy in which a comment was added to the reference of the middle task; and its id."""
    lines = source.read_text().splitlines()
    middle = len(lines) // 2
    row = json.loads(lines[middle])
    row["canonical_solution"] += "    # changed\n"
    lines[middle] = json.dumps(row)
    path = folder / "changed" / source.name
    path.parent.mkdir()
    path.write_text("".join(line + "\n" for line in lines))
    return path, row["task_id"]


class Inspector:
    """Inspects sources, and notes how long that takes and whose trials run."""

    def __init__(self, options: InspectOptions) -> None:
        self.options = options
        self.seconds: list[float] = []
        self.ran: list[Counter[str]] = []

    def inspect(self, words: str, source: Path) -> None:
        """Inspect once and print what it took."""
        tasks: Counter[str] = Counter()
        run = TrialRunner.run

        def spy(runner: TrialRunner, trial: Trial) -> TrialResult:
            tasks.update({ask.task for ask in trial.asks})
            return run(runner, trial)

        started = time.perf_counter()
        with mock.patch.object(TrialRunner, "run", spy):
            report = inspect_source(str(source), self.options)
        self.seconds.append(time.perf_counter() - started)
        self.ran.append(tasks)
        ran, cached = report.trials["run"], report.trials["cached"]
        print(
            f"{words:<8} {report.verdict}: {self.seconds[-1]:7.2f} s, {ran} trials run "
            f"({len(tasks)} of {len(report.tasks)} tasks), {cached} cached, "
            f"{(ran + cached) / self.seconds[-1]:.0f} trials/s"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", nargs="?", type=Path)
    parser.add_argument("--jobs", type=int, default=0)
    parser.add_argument("--effort", choices=EFFORTS, default=AdmissionPolicy().effort)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="qh-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        policy = replace(AdmissionPolicy(), effort=given.effort)
        inspector = Inspector(InspectOptions(policy, folder / "home", jobs=given.jobs))
        source = given.source or made(folder)
        for words in ("first", "again"):
            inspector.inspect(words, source)
        other, task = changed(source, folder)
        inspector.inspect("changed", other)
    ratio = inspector.seconds[0] / inspector.seconds[1]
    fast = ratio >= TARGET and not inspector.ran[1]
    alone = set(inspector.ran[2]) == {task}
    busy = f"load of this host {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs"
    print(f"first / again: {ratio:.0f}x (target {TARGET:.0f}x, {_said(fast)}); {busy}")
    print(f"after one task changed, only that task runs: {_said(alone)}")
    return 0 if fast and alone else 1


def _said(met: bool) -> str:
    return "met" if met else "missed"


if __name__ == "__main__":
    sys.exit(main())
