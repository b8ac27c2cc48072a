"""A worker dies in the middle of an inspection: real PostgreSQL, real broker, real workers."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from django.db.models import Count

from qualityhub.engine.inspect import InspectOptions, inspect_source
from qualityhub.engine.policy import AdmissionPolicy
from qualityhub.inspections.models import Batch, Inspection, InspectionTrial, TrialRecord
from qualityhub.inspections.services import inspection_start

pytestmark = pytest.mark.django_db(transaction=True)
TASKS = 20


def parent_of(pid):
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def test_killed_worker_loses_nothing(start_worker, wait_for, open_home, rows, upload):
    data = rows(TASKS, wrong=[3, 11])
    version = upload(data)
    workers = {process.pid: process for process in map(start_worker, ("a", "b"))}
    # No ticket is sent from here: the scheduler finds the waiting work.
    inspection = inspection_start(version=version, actor="owner@example.org")

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

    batch, worker = wait_for(busy)
    os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()

    def ended():
        row = Inspection.objects.get(pk=inspection.pk)
        return row if row.finished_at else None

    result = wait_for(ended)
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


def test_ending_worker_gives_back_what_it_holds(start_worker, wait_for, rows, upload):
    inspection = inspection_start(version=upload(rows(TASKS)), actor="owner@example.org")
    worker = start_worker("a")

    def busy():
        return Batch.objects.filter(kind="trials", status="leased", leased_at__isnull=False).first()

    wait_for(busy)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(timeout=60) == 0
    assert not Batch.objects.filter(status="leased").exists()
    waiting = Batch.objects.filter(inspection=inspection, status="queued")
    assert set(waiting.values_list("attempts", flat=True)) == {0}
    inspection.refresh_from_db()
    assert inspection.status == "running"
    assert TrialRecord.objects.count() == inspection.trials_done
