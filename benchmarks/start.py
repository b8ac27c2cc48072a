"""Start of a sandboxed trial from an image's snapshot, against a container of the same image.

    python benchmarks/start.py [--image NAME] [--program WORD...] [--starts 200] [--containers 20]

All in one run, taking turns, so that a noisy neighbour meets all of them: the bare process on this
host, the same program in a bubblewrap sandbox over the image's exported tree, and in a container
through the engine's API (create, start, wait, remove; no network). Target: the snapshot's p50 is at
most 15 ms over the bare process, and a container takes at least 20 times as long as the snapshot
adds. Without an engine only the first target is measured, over the rehearsal base.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import docker

from qualityhub.engine.sandbox.bwrap import BwrapSandbox
from qualityhub.engine.sandbox.engine import connect, engine_address
from qualityhub.engine.sandbox.images.building import fetch_image
from qualityhub.engine.sandbox.images.model import ImageTree
from qualityhub.engine.sandbox.port import Command, Sandbox

TARGET_MS, TARGET_RATIO = 15.0, 20.0
WARM_UP = 5
ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin"}


def bare(program: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run(program, check=True, env=ENV, stdin=subprocess.DEVNULL, capture_output=True)
    return time.perf_counter() - started


def snapshot(sandbox: Sandbox, base: Path | None, program: list[str]) -> float:
    started = time.perf_counter()
    seen = sandbox.run(Command(argv=tuple(program), env=ENV, base=base))
    seconds = time.perf_counter() - started
    if seen.exit_code != 0:
        raise SystemExit(f"the sandboxed program failed: {seen.stderr.decode(errors='replace')}")
    return seconds


def container(client: docker.DockerClient, image: str, program: list[str]) -> float:
    started = time.perf_counter()
    made = client.api.create_container(
        image,
        command=program[1:],
        entrypoint=program[:1],
        network_disabled=True,
        host_config=client.api.create_host_config(network_mode="none"),
    )["Id"]
    try:
        client.api.start(made)
        code = client.api.wait(made)["StatusCode"]
    finally:
        client.api.remove_container(made, force=True)
    if code != 0:
        raise SystemExit(f"the program failed in a container: status {code}")
    return time.perf_counter() - started


def quantiles(seconds: list[float]) -> tuple[float, float]:
    """p50 and p95 in milliseconds."""
    ranked = sorted(seconds)
    return 1000 * statistics.median(ranked), 1000 * ranked[int(0.95 * (len(ranked) - 1))]


def take_turns(ways: dict[str, tuple[Callable[[], float], int]]) -> dict[str, list[float]]:
    """Run every way as often as it says, spread evenly over the run."""
    for run, _ in ways.values():
        for _ in range(WARM_UP if len(ways) > 1 else 1):
            run()
    rounds = max(count for _, count in ways.values())
    seen: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(rounds):
        for name, (run, count) in ways.items():
            if len(seen[name]) < count * (turn + 1) / rounds:
                seen[name].append(run())
    return seen


def engine_and_tree(image: str, home: Path) -> tuple[docker.DockerClient | None, ImageTree | None]:
    address = engine_address()
    if not address:
        print("no container engine answers (DOCKER_HOST): only the sandbox is measured")
        return None, None
    tree = fetch_image(image, home)
    if not isinstance(tree, ImageTree):
        print(f"the engine has no {image} ({tree.reason}): only the sandbox is measured")
        return None, None
    return connect(address), tree


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--image", default="python:3.11-slim")
    parser.add_argument("--program", nargs="+", default=["/bin/true"])
    parser.add_argument("--starts", type=int, default=200)
    parser.add_argument("--containers", type=int, default=20)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(
        prefix="qh-bench-", dir="/var/tmp", ignore_cleanup_errors=True
    ) as name:
        home = Path(name)
        home.chmod(0o755)
        sandbox = BwrapSandbox(home)
        try:
            able = sandbox.capability()
            if not able.usable:
                print(f"bubblewrap cannot run here ({able.reason}): nothing is measured")
                return 0
            client, tree = engine_and_tree(given.image, home)
            base = tree.path if tree is not None else None
            ways: dict[str, tuple[Callable[[], float], int]] = {
                "bare process": (lambda: bare(given.program), given.starts),
                "snapshot": (lambda: snapshot(sandbox, base, given.program), given.starts),
            }
            if client is not None:
                run = lambda: container(client, given.image, given.program)  # noqa: E731
                ways["container"] = (run, given.containers)
            seen = take_turns(ways)
        finally:
            sandbox.close()
    return report(given, seen, "rehearsal base" if base is None else given.image)


def report(given: argparse.Namespace, seen: dict[str, list[float]], base: str) -> int:
    busy = f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs"
    print(f"{' '.join(given.program)} over {base}; load of this host {busy}")
    for name, seconds in seen.items():
        p50, p95 = quantiles(seconds)
        print(f"{name:<13} p50 {p50:8.2f} ms   p95 {p95:8.2f} ms   ({len(seconds)} runs)")
    over = quantiles(seen["snapshot"])[0] - quantiles(seen["bare process"])[0]
    met = over <= TARGET_MS
    print(f"over the bare process: p50 {over:.2f} ms (target {TARGET_MS:g} ms, {_said(met)})")
    if "container" in seen:
        ratio = quantiles(seen["container"])[0] / quantiles(seen["snapshot"])[0]
        fast = ratio >= TARGET_RATIO
        print(f"container / snapshot: {ratio:.1f}x (target {TARGET_RATIO:g}x, {_said(fast)})")
        met = met and fast
    return 0 if met else 1


def _said(met: bool) -> str:
    return "met" if met else "missed"


if __name__ == "__main__":
    sys.exit(main())
