"""A worker dies in the middle of an inspection: real PostgreSQL, real broker, real workers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from django.db import connection
from django.db.models import Count

from qualityhub.engine.inspect import InspectOptions, inspect_source
from qualityhub.engine.policy import AdmissionPolicy
from qualityhub.inspections.models import Batch, Inspection, InspectionTrial, TrialRecord
from qualityhub.inspections.services import inspection_start
from qualityhub.registry.services import version_register

pytestmark = pytest.mark.django_db(transaction=True)
ROOT = Path(__file__).parents[2]
TASKS = 20
PATIENCE_S = 180


@pytest.fixture
def broker(open_home):
    from qualityhub.standalone.broker import EmbeddedValkey

    server = EmbeddedValkey(open_home / "valkey")
    yield server.start()
    server.stop()


@pytest.fixture
def start_worker(database_url, broker, open_home):
    """``start_worker("a")`` starts a worker with one process and a scheduler, in its own group."""
    started = []
    url = urlsplit(database_url)._replace(path=f"/{connection.settings_dict['NAME']}").geturl()
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(open_home),
        "PYTHONPATH": str(ROOT),
        "QH_HOME": str(open_home),
        "QH_DATABASE_URL": url,
        "QH_BROKER_URL": broker,
        "QH_SECRET_KEY": "for-tests-" * 5,
        "QH_LEASE_SECONDS": "5",
    }
    log = (open_home / "workers.log").open("ab")

    def start(name):
        words = ("--app", "workers.app", "--skip-checks", "worker", "--beat", "--concurrency", "1")
        process = subprocess.Popen(
            [sys.executable, "-m", "celery", *words, "--hostname", f"{name}@%h"],
            cwd=open_home,
            env=environ,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        kill_group(process)
    log.close()


def kill_group(process):
    """Kill a worker with all its processes, as the loss of its machine would."""
    if process.returncode is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_for(what, log):
    """Return what ``what`` returns once it is true."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := what()):
        if time.monotonic() > deadline:
            pytest.fail("it did not happen in time\n" + log.read_text()[-4000:])
        time.sleep(0.05)
    return found


def parent_of(pid):
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def test_killed_worker_loses_nothing(environment, start_worker, open_home, rows, archive_of):
    data = rows(TASKS, wrong=[3, 11])
    version = version_register(
        environment=environment,
        actor="owner@example.org",
        archive=archive_of({"tasks.jsonl": data}),
        filename="tasks.tar.gz",
    ).version
    workers = {process.pid: process for process in map(start_worker, ("a", "b"))}
    # No ticket is sent from here: the scheduler finds the waiting work.
    inspection = inspection_start(version=version, actor="owner@example.org")
    log = open_home / "workers.log"

    def busy():
        """Return a batch of trials in the hands of a worker, frozen there, and that worker."""
        for batch in Batch.objects.filter(kind="trials", status="leased"):
            worker = workers.get(parent_of(int(batch.worker.rpartition(":")[2])))
            if worker is None:
                continue
            os.killpg(worker.pid, signal.SIGSTOP)
            if Batch.objects.filter(pk=batch.pk, lease_token=batch.lease_token).exists():
                return batch, worker
            os.killpg(worker.pid, signal.SIGCONT)
        return None

    batch, worker = wait_for(busy, log)
    kill_group(worker)

    def ended():
        row = Inspection.objects.get(pk=inspection.pk)
        return row if row.finished_at else None

    result = wait_for(ended, log)
    assert (result.status, result.error_message) == ("finished", "")
    assert worker.returncode == -signal.SIGKILL
    assert len([process for process in workers.values() if process.poll() is None]) == 1
    killed = batch.worker
    batch.refresh_from_db()
    assert (batch.status, batch.attempts) == ("done", 2)
    assert batch.worker != killed
    doubled = (
        InspectionTrial.objects.values("inspection", "key").annotate(n=Count("pk")).filter(n__gt=1)
    )
    assert not doubled.exists()
    assert TrialRecord.objects.count() == InspectionTrial.objects.count() == result.trials_total

    source = open_home / "source"
    source.mkdir()
    (source / "tasks.jsonl").write_bytes(data)
    alone = inspect_source(str(source), InspectOptions(AdmissionPolicy(), open_home, cache=False))
    assert result.verdict == alone.verdict == "partial"
    assert {item["fingerprint"] for item in result.report["findings"]} == {
        item.fingerprint for item in alone.findings
    }
    assert result.trials_total == alone.trials["run"]
