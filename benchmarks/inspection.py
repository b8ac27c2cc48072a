"""First inspection of a file against the second: trials per second, and the ratio of the two.

    python benchmarks/inspection.py [SOURCE] [--jobs N]

Without SOURCE it makes a HumanEval-style file of 164 small tasks. Target: the second run is at
least 50 times faster than the first.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

from qualityhub.engine.inspect import InspectOptions, inspect_source
from qualityhub.engine.policy import AdmissionPolicy

TARGET = 50.0


def made(folder: Path) -> str:
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
    return str(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", nargs="?")
    parser.add_argument("--jobs", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="qh-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        options = InspectOptions(AdmissionPolicy(), folder / "home", jobs=given.jobs)
        source = given.source or made(folder)
        seconds = []
        for words in ("first", "again"):
            started = time.perf_counter()
            report = inspect_source(source, options)
            seconds.append(time.perf_counter() - started)
            ran, cached = report.trials["run"], report.trials["cached"]
            print(
                f"{words:<6} {report.verdict}: {seconds[-1]:7.2f} s, {ran} trials run, "
                f"{cached} cached, {(ran + cached) / seconds[-1]:.0f} trials/s"
            )
        ratio = seconds[0] / seconds[1]
        met = "met" if ratio >= TARGET else "missed"
        print(f"ratio  {ratio:.0f}x (target {TARGET:.0f}x, {met})")


if __name__ == "__main__":
    main()
