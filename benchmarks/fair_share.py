"""Fair share and speed of the work queue: real claims and leases, with batches that do nothing.

Starts its own PostgreSQL (fsync on) in a temporary folder, and two worker processes. Targets:
behind a backlog of 10,000 batches of one domain, another domain's 10 batches finish within 2x of
the time they take on an idle hub; at least 500 claims per second from that backlog.

Run: python benchmarks/fair_share.py [--backlog 10000] [--batch-ms 25] [--rounds 5]
"""

# ruff: noqa: PLC0415 - Django is imported once its settings are known.
from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.sharedctypes import Synchronized
    from multiprocessing.synchronize import Event

TARGET_RATIO, TARGET_CLAIMS = 2.0, 500
WORKERS, SMALL = 2, 10
SPEED_S = 6.0


def setup() -> None:
    import django

    django.setup()


def worker(name: str, stop: Event, batch_s: float, spent: Synchronized[float]) -> None:
    """Claim and finish batches until told to stop; what a batch does is wait."""
    setup()
    from qualityhub.inspections.claims import batch_claim, batch_done, fenced

    while not stop.is_set():
        began = time.monotonic()
        lease = batch_claim(name)
        with spent.get_lock():
            spent.value += time.monotonic() - began
        if lease is None:
            time.sleep(0.002)
            continue
        time.sleep(batch_s)
        with fenced(lease) as (_, batch):
            batch_done(batch)


class Pool:
    """Worker processes for the length of a block."""

    def __init__(self, batch_s: float) -> None:
        context = multiprocessing.get_context("spawn")
        self.stop = context.Event()
        self.spent = context.Value("d", 0.0)
        self.processes = [
            context.Process(target=worker, args=(f"worker-{n}", self.stop, batch_s, self.spent))
            for n in range(WORKERS)
        ]

    def __enter__(self) -> Self:
        for process in self.processes:
            process.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop.set()
        for process in self.processes:
            process.join()


def inspection_of(slug: str) -> Any:
    """Return an inspection of a domain of its own, without batches."""
    from qualityhub.accounts.models import Team
    from qualityhub.inspections.choices import Priority, Trigger
    from qualityhub.inspections.models import Inspection
    from qualityhub.platform.jobs import job_create
    from qualityhub.registry.choices import SourceKind
    from qualityhub.registry.models import Domain, Environment, EnvironmentVersion

    team, _ = Team.objects.get_or_create(slug="lab", defaults={"name": "Lab"})
    domain = Domain.objects.create(team=team, slug=slug, name=slug)
    environment = Environment.objects.create(team=team, domain=domain, slug=slug, name=slug)
    version = EnvironmentVersion.objects.create(
        environment=environment,
        digest=f"qh1:{slug}",
        adapter="humaneval",
        family="function",
        task_count=1,
        source_kind=SourceKind.REFERENCE,
        source="benchmark",
        created_by="benchmark",
    )
    return Inspection.objects.create(
        team=team,
        version=version,
        domain=domain,
        job=job_create(team_id=team.pk, kind="inspection"),
        policy={},
        policy_version="benchmark",
        effort="standard",
        trigger=Trigger.MANUAL,
        priority=Priority.INTERACTIVE,
        actor="benchmark",
        status="running",
    )


def queue(inspection: Any, count: int, number: int) -> None:
    from qualityhub.inspections.choices import BatchKind
    from qualityhub.inspections.models import Batch

    Batch.objects.bulk_create(
        [
            Batch(
                inspection=inspection,
                domain_id=inspection.domain_id,
                priority=inspection.priority,
                kind=BatchKind.TRIALS,
                round=number,
                ordinal=ordinal,
            )
            for ordinal in range(count)
        ],
        batch_size=1000,
    )


def wait_for(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            sys.exit("it did not happen in time")
        time.sleep(0.002)


def seconds_of(slug: str) -> float:
    """Queue ten batches of a new domain and return the seconds until all are done."""
    from qualityhub.inspections.models import Batch

    inspection = inspection_of(slug)
    rows = Batch.objects.filter(inspection=inspection).exclude(status="done")
    began = time.monotonic()
    queue(inspection, SMALL, 1)
    wait_for(lambda: not rows.exists())
    return time.monotonic() - began


def fair_share(backlog: int, batch_s: float, rounds: int) -> float:
    """Print and return how much longer a small domain waits behind the backlog."""
    from qualityhub.inspections.models import Batch

    big = inspection_of("big")
    with Pool(batch_s):
        seconds_of("warm")  # Both workers are up.
        idle = [seconds_of(f"idle-{number}") for number in range(rounds)]
        queue(big, backlog, 1)
        wait_for(lambda: Batch.objects.filter(inspection=big, status="done").count() > 20)
        busy = [seconds_of(f"busy-{number}") for number in range(rounds)]
    left = Batch.objects.filter(inspection=big, status="queued").count()
    print(f"idle hub: {SMALL} batches in {statistics.median(idle) * 1000:.0f} ms (median)")
    print(f"behind {left:,} waiting: {statistics.median(busy) * 1000:.0f} ms (median)")
    return statistics.median(busy) / statistics.median(idle)


def speed(backlog: int) -> tuple[float, float]:
    """Return claims, and claimed and finished batches, per second from a backlog of one domain.

    Claims per second count the time within a claim alone, over all workers.
    """
    from qualityhub.inspections.models import Batch

    inspection = inspection_of("speed")
    queue(inspection, backlog, 1)
    done = Batch.objects.filter(inspection=inspection, status="done")
    with Pool(0.0) as pool:
        wait_for(lambda: done.count() > 50)
        began, before, spent = time.monotonic(), done.count(), pool.spent.value
        time.sleep(SPEED_S)
        count, seconds = done.count() - before, time.monotonic() - began
        spent = pool.spent.value - spent
    if done.count() >= backlog:
        print("the backlog ran dry: the rate is a lower bound")
    return count * WORKERS / spent, count / seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backlog", type=int, default=10_000)
    parser.add_argument("--batch-ms", type=float, default=25.0)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    from qualityhub.standalone.postgres import EmbeddedPostgres

    folder = Path(tempfile.mkdtemp(prefix="qh-bench-share-", dir="/tmp"))
    server = EmbeddedPostgres(folder)
    try:
        os.environ |= {
            "QH_DATABASE_URL": server.start(),
            "QH_HOME": str(folder / "home"),
            "QH_SECRET_KEY": "benchmark-" * 5,
            "QH_LOG_LEVEL": "warning",
            "DJANGO_SETTINGS_MODULE": "qualityhub.settings",
        }
        setup()
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        rate, finished = speed(options.backlog)
        print(f"claims: {rate:.0f}/s by {WORKERS} workers (target: at least {TARGET_CLAIMS}/s)")
        print(f"claimed and finished, two commits each: {finished:.0f} batches/s")
        ratio = fair_share(options.backlog, options.batch_ms / 1000, options.rounds)
        print(f"fair share: {ratio:.2f}x of an idle hub (target: at most {TARGET_RATIO:.0f}x)")
        return 0 if ratio <= TARGET_RATIO and rate >= TARGET_CLAIMS else 1
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
