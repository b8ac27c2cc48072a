"""A worker that cannot read what it needs leaves the work, whole, to the others."""

from __future__ import annotations

import pytest

from qualityhub.engine.errors import MachineryError
from qualityhub.inspections import bench as module
from qualityhub.inspections import claims, draining, faults, planning, workers
from qualityhub.inspections.bench import Bench
from qualityhub.inspections.models import Batch, Worker
from qualityhub.inspections.needs import Needs, Offer

pytestmark = pytest.mark.django_db
LOST = MachineryError("blob.lost", "The blob x is not in the store.")
FULL = OSError(28, "No space left on device", "/srv/of/a/host")


@pytest.fixture
def pair(script, monkeypatch):
    """Two workers that beat; tests break the first one."""
    monkeypatch.setattr(planning.TrialNeeds, "of_task", only_without)
    benches = []
    for name in ("bad", "good"):
        offer = Offer(name, provider="scripted")
        workers.worker_beat(name, offer, 1)
        benches.append(Bench(f"{name}:1", offer=offer))
    yield benches
    for bench in benches:
        bench.close()


def only_without(planner, task_id):
    """The scripted world has no host of its own."""
    return Needs(without=planner._common.without)


def break_in(monkeypatch, bench, where, error):
    """Let a step fail on one bench alone."""

    def fail(*args, **options):
        raise error

    if where == "prepare_worlds":
        whole = module.prepare_worlds
        monkeypatch.setattr(bench, "_home", lambda: "bad")
        monkeypatch.setattr(
            module,
            "prepare_worlds",
            lambda *args: fail() if args[2] == "bad" else whole(*args),
        )
    else:
        monkeypatch.setattr(bench, where, fail)


@pytest.mark.parametrize(
    "broken",
    [
        (where, error)
        for where in ("_environment", "_stage", "_world", "prepare_worlds")
        for error in (LOST, FULL)
    ],
)
def test_own_fault_costs_the_inspection_no_attempt(upload, start, pair, monkeypatch, broken):
    bad, good = pair
    inspection = start(upload(3))
    break_in(monkeypatch, bad, *broken)
    while draining.drain(bad, 60):
        pass
    inspection.refresh_from_db()
    assert list(inspection.refused) == ["bad"]
    assert "/srv" not in inspection.refused["bad"]
    waiting = Batch.objects.filter(inspection=inspection, status="queued")
    assert set(waiting.values_list("attempts", flat=True)) == {0}
    assert claims.batch_claim("bad:1", bad.fits) is None
    while draining.drain(good, 60):
        pass
    inspection.refresh_from_db()
    assert (inspection.status, inspection.verdict) == ("finished", "admitted")


def test_error_that_may_be_anybodys_still_counts(upload, start, pair, monkeypatch):
    inspection = start(upload(3))
    break_in(monkeypatch, pair[0], "_environment", ValueError("odd"))
    draining.drain(pair[0], 60)
    inspection.refresh_from_db()
    assert (inspection.refused, inspection.batches.get().attempts) == ({}, 1)


def test_worker_that_fails_again_and_again_pauses_longer_and_longer(
    upload, start, pair, monkeypatch
):
    clock = [1000.0]
    monkeypatch.setattr(faults.time, "monotonic", lambda: clock[0])
    bad, _ = pair
    whole = bad._environment
    break_in(monkeypatch, bad, "_environment", FULL)
    for shift in range(4):
        start(upload(2, shift))
    assert draining.drain(bad, 60) == faults.IN_A_ROW
    assert bad.faults.pausing
    row = Worker.objects.get(name="bad")
    assert row.trouble == "OSError: No space left on device"
    assert row.paused_until is not None
    assert Worker.objects.get(name="good").paused_until is None
    clock[0] += faults.FIRST_S + 1
    assert draining.drain(bad, 60) == 1
    clock[0] += faults.FIRST_S + 1
    assert bad.faults.pausing, "the second pause is longer"
    clock[0] += faults.MOST_S
    monkeypatch.setattr(bad, "_environment", whole)
    start(upload(2, 9))
    assert draining.drain(bad, 60) > 0
    row.refresh_from_db()
    assert (row.trouble, row.paused_until) == ("", None)


@pytest.mark.django_db(transaction=True)
def test_pausing_worker_passes_its_ticket_on_where_another_lives(upload, start, pair, sent_tasks):
    bad, _ = pair
    start(upload(2))
    for _ in range(faults.IN_A_ROW):
        bad.faults.add("why")
    sent_tasks.sent.clear()
    assert draining.drain(bad, hops=2) == 0
    assert sent_tasks.sent == [("inspections.drain", (3,), "inspect")]
    Worker.objects.filter(name="good").delete()
    sent_tasks.sent.clear()
    draining.drain(bad)
    assert sent_tasks.sent == []


def test_new_start_of_a_worker_forgets_its_trouble():
    workers.worker_beat("w", Offer("one"), 1)
    workers.worker_paused("one", "why", 60)
    workers.worker_beat("w", Offer("one"), 1)
    assert Worker.objects.get().trouble == "why"
    workers.worker_beat("w", Offer("two"), 1)
    assert (Worker.objects.get().trouble, Worker.objects.get().paused_until) == ("", None)
