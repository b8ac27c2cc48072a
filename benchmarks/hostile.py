"""Hostile programs beside a calm neighbour: what they end with, and how much slower it gets.

    python benchmarks/hostile.py [NAME...] [--served] [--seconds 1.0] [--rounds 5]

Every program of ``tests/data/hostile`` runs in one sandbox, again and again for some seconds, while
a trial of fixed work (CPU, files, processes) runs in another. Each is compared with the same trial
alone, right before. Target: at most twice as slow, each program ends as a plain result, and the
host is as it was. On two or more processors the neighbour's own are pinned; hostile programs are
not: they take all there are. Exits with 1 where something is missed.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import secrets
import statistics
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

from qualityhub.engine.sandbox import idmaps
from qualityhub.engine.sandbox.bwrap import BwrapSandbox
from qualityhub.engine.sandbox.interpreters import default_interpreter
from qualityhub.engine.sandbox.port import Command, Completed, Limits, Server
from qualityhub.engine.sandbox.served import serve_key

TARGET = 2.0


def _from_tests(name: str) -> ModuleType:
    place = Path(__file__).resolve().parents[1] / "tests/engine/sandbox" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, place)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


host = _from_tests("host")
hostile = _from_tests("hostile")
WORK = (
    "import os\n"
    "total = 0\n"
    "for number in range(900_000): total += number * number\n"
    "for number in range(100): open('/tmp/%d' % number, 'w').write('x' * 1000)\n"
    "for _ in range(5):\n"
    "    if (pid := os.fork()) == 0: os._exit(0)\n"
    "    os.waitpid(pid, 0)\n"
)


@dataclass(frozen=True, slots=True)
class Row:
    """What one program did, and what that did to its neighbour."""

    name: str
    ended: str
    runs: int
    alone_s: float
    beside_s: float
    problems: list[str]

    @property
    def ratio(self) -> float:
        """How many times as long the neighbour takes."""
        return self.beside_s / self.alone_s


class Ring:
    """Two sandboxes: one for hostile programs, one for the neighbour on a processor of its own."""

    def __init__(self, folder: Path, *, served: bool) -> None:
        self.folder = folder
        self.python = str(default_interpreter().path)
        self.served = served
        self.mark = secrets.token_hex(12)
        self._servers: dict[object, Server] = {}
        self.rough = BwrapSandbox(folder / "rough")
        self.calm = BwrapSandbox(folder / "calm")
        if not self.rough.capability().usable:
            raise SystemExit(f"bubblewrap: {self.rough.capability().reason}")
        processors = os.sched_getaffinity(0)
        # A launcher keeps the processors of the thread that started it.
        os.sched_setaffinity(0, {max(processors)})
        self.work()
        os.sched_setaffinity(0, processors)

    def work(self) -> float:
        """Return the seconds of one calm trial."""
        started = time.perf_counter()
        seen = self.calm.run(
            Command(argv=(self.python, "-I", "-S", "-c", WORK), limits=Limits(wall_s=120))
        )
        if seen.exit_code != 0:
            raise SystemExit(f"the calm trial failed: {seen}")
        return time.perf_counter() - started

    def attack(self, case: hostile.Case, laid: hostile.Bait) -> Completed:
        """Run one hostile program, as a server's trial where that was asked for."""
        if not self.served or not case.file.endswith(".py"):
            return self.rough.run(hostile.command(case, self.python, laid, mark=self.mark))
        wanted = hostile.served(case, self.python, laid, mark=self.mark)
        key = serve_key(wanted)
        if key not in self._servers:
            self._servers[key] = self.rough.serve(wanted)
        return self._servers[key].run(wanted)

    def close(self) -> None:
        """End servers and launchers."""
        for server in self._servers.values():
            server.close()
        self.rough.close()
        self.calm.close()


def measure(ring: Ring, case: hostile.Case, seconds: float, rounds: int) -> Row:
    """Run the neighbour alone, then beside one program."""
    if "timeout" in case.ends:
        case = replace(case, limits=replace(case.limits, wall_s=seconds))
    hard = ring.rough.capability().limits["memory_bytes"] == "hard"
    # Starts what it needs: launcher, server.
    ring.rough.run(Command(argv=("/bin/true",)))
    launcher = ring.rough._launcher.process.pid  # noqa: SLF001 - watched from outside
    with hostile.bait(ring.folder, secrets.token_hex(12), os.getpid(), launcher) as laid:
        seen = ring.attack(case, laid)
        problems = hostile.problems(case, seen, hard=hard)

        def look() -> host.Host:
            return host.look(ring.folder, ring.mark, (launcher,), idmaps.current().owner)

        before = look()
        alone = [ring.work() for _ in range(rounds)]
        ended: list[Completed] = []
        over = threading.Event()

        def attack() -> None:
            while not over.is_set():
                ended.append(ring.attack(case, laid))

        thread = threading.Thread(target=attack)
        thread.start()
        time.sleep(0.1)
        beside = [ring.work() for _ in range(rounds)]
        over.set()
        thread.join()
        for again in ended:
            problems += hostile.problems(case, again, hard=hard)
        problems += host.settled(before, look)
    return Row(
        case.name,
        hostile.outcome(seen),
        len(ended),
        statistics.median(alone),
        statistics.median(beside),
        sorted(set(problems)),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="those whose name has one of these words")
    parser.add_argument("--served", action="store_true", help="through fork servers")
    parser.add_argument("--seconds", type=float, default=1.0, help="of those that never end")
    parser.add_argument("--rounds", type=int, default=5, help="calm trials for each number")
    given = parser.parse_args()
    cases = [
        case
        for case in hostile.CASES
        if not given.names or any(name in case.name for name in given.names)
    ]
    with tempfile.TemporaryDirectory(prefix="qh-bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        ring = Ring(folder, served=given.served)
        try:
            rows = []
            for case in cases:
                row = measure(ring, case, given.seconds, given.rounds)
                if row.ratio > TARGET:
                    # A busy host is no finding: the worse of two has to repeat itself.
                    again = measure(ring, case, given.seconds, 2 * given.rounds)
                    row = min(row, again, key=lambda one: one.ratio)
                rows.append(row)
                print(
                    f"{row.ratio:5.2f}x  {row.alone_s * 1000:6.0f} -> {row.beside_s * 1000:6.0f} ms"
                    f"  {row.runs:4d} runs  {row.ended:<9}  {row.name}",
                    flush=True,
                )
                for problem in row.problems:
                    print(f"       {problem}", flush=True)
        finally:
            ring.close()
    worst = max(rows, key=lambda row: row.ratio)
    failed = sum(bool(row.problems) for row in rows)
    met = "met" if worst.ratio <= TARGET else "missed"
    print(f"{len(rows)} programs, {failed} with problems; load {os.getloadavg()[0]:.1f}")
    print(f"worst  {worst.ratio:.2f}x beside {worst.name} (target {TARGET:.0f}x, {met})")
    sys.exit(bool(failed) or worst.ratio > TARGET)


if __name__ == "__main__":
    main()
