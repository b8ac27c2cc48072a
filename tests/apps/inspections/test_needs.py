"""Which worker a batch goes to, and what is said where there is none."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from qualityhub.inspections import claims, draining, planning, workers
from qualityhub.inspections.bench import Bench, CannotHereError
from qualityhub.inspections.choices import BatchKind, Priority
from qualityhub.inspections.models import Batch, Inspection, InspectionTrial, Need, Worker
from qualityhub.inspections.needs import Needs, Offer, needs_from, offer_from, unmet, words_of
from qualityhub.inspections.planning import need_key
from qualityhub.inspections.turns import Fits

pytestmark = pytest.mark.django_db

FULL = Offer(
    "here",
    arch="x86_64",
    provider="bwrap",
    ownership=True,
    engine=True,
    gpus=1,
    memory_mib=4096,
    cpus=4,
    pythons=("3.11.9", "3.12.1"),
    labels={"zone": "a"},
)


@pytest.fixture
def queue(version, start):
    """``queue(Needs(...), 3)`` leaves so many batches with these needs."""

    def make(needs, count=1, priority=Priority.INTERACTIVE):
        inspection = start(version)
        Batch.objects.filter(inspection=inspection, kind=BatchKind.PREPARE).delete()
        first = Batch.objects.filter(inspection=inspection).count()
        return Batch.objects.bulk_create(
            Batch(
                inspection=inspection,
                domain_id=inspection.domain_id,
                priority=priority,
                kind=BatchKind.TRIALS,
                round=1,
                ordinal=first + number,
                needs=need_key(needs),
            )
            for number in range(count)
        )

    return make


def silent(name, seconds):
    Worker.objects.filter(name=name).update(seen_at=timezone.now() - timedelta(seconds=seconds))


@pytest.mark.parametrize(
    ("needs", "lacking"),
    [
        (Needs(), ""),
        (Needs(engine=True, arch="x86_64", provider="bwrap", ownership="yes", gpus=1), ""),
        (Needs(memory_mib=4096, cpus=4, python="==3.12.1", labels=(("zone", "a"),)), ""),
        (Needs(arch="aarch64"), "architecture aarch64"),
        (Needs(provider="container"), "the container sandbox"),
        (Needs(provider="bwrap", ownership="no"), "a sandbox without a range of user ids"),
        (Needs(gpus=2), "2 GPUs"),
        (Needs(memory_mib=4097), "4097 MiB of memory"),
        (Needs(cpus=5), "5 CPUs"),
        (Needs(python=">=3.13"), "Python >=3.13"),
        (Needs(labels=(("zone", "b"),)), "label zone=b"),
        (Needs(labels=(("disk", "fast"),)), "label disk=fast"),
        (Needs(without=("here",)), "the very world it was prepared in"),
        (Needs(without=("another",)), ""),
        (Needs(cpus=5, gpus=2), "2 GPUs and 5 CPUs"),
    ],
)
def test_what_an_offer_lacks_is_said(needs, lacking):
    assert words_of(unmet(needs, FULL)) == lacking
    assert unmet(needs_from(needs.document()), offer_from(FULL.document())) == unmet(needs, FULL)


def test_offer_without_engine_lacks_it():
    assert unmet(Needs(engine=True), Offer("s")) == ["a container engine"]


def test_needs_of_a_newer_version_are_met_by_nobody():
    assert unmet(needs_from({"quantum": True}), FULL)


def test_same_needs_are_one_row():
    first = need_key(Needs(engine=True))
    assert need_key(Needs(engine=True)) == first
    assert need_key(Needs(gpus=1)) != first
    assert need_key(Needs()) == 0
    assert Need.objects.count() == 2


def test_needs_that_nobody_waits_with_are_forgotten(queue):
    queue(Needs(engine=True))
    need_key(Needs(gpus=1))
    Need.objects.update(used_at=timezone.now() - timedelta(days=3))
    assert planning.needs_purge() == 1
    assert Need.objects.get().document == {"engine": True}


@pytest.mark.parametrize("turned", [False, True])
def test_planners_lock_needs_in_one_order_whatever_the_order_of_their_trials(
    upload, judge, script, monkeypatch, turned
):
    from types import SimpleNamespace

    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    from qualityhub.engine.environments.model import Environment

    inspection = judge(upload(2))
    planner = planning.TrialNeeds(
        inspection, Environment("e", "harbor", "task", "qh1:e", ()), {"": None}
    )
    monkeypatch.setattr(planner, "of_task", lambda task: Needs(cpus=int(task)))
    tasks = [str(number) for number in range(1, 9)] + ["1"]
    trials = [
        SimpleNamespace(asks=[SimpleNamespace(task=task)])
        for task in (reversed(tasks) if turned else tasks)
    ]
    with CaptureQueriesContext(connection) as queries:
        keys = planner.keys(trials)
    (insert,) = [query["sql"] for query in queries if query["sql"].startswith("INSERT")]
    digests = [Needs(cpus=number).digest for number in range(1, 9)]
    assert sorted(digests, key=insert.index) == sorted(digests)
    found = [Need.objects.get(pk=key).document["cpus"] for key in keys]
    assert found == [int(trial.asks[0].task) for trial in trials]


@pytest.mark.django_db(transaction=True)
def test_audit_locks_needs_before_it_starts_the_first_inspection(team, monkeypatch):
    from qualityhub.inspections import audits

    made = []
    monkeypatch.setattr(planning, "need_keys", lambda needs: made.append(list(needs)) or {})
    first, second = object(), object()
    monkeypatch.setattr(planning, "prepare_needs", lambda version: version)
    monkeypatch.setattr(audits, "_due", lambda *rest: iter([(first, "a"), (second, "b")]))

    def start(**fields):
        raise RuntimeError(str(made == [[first, second]]))

    monkeypatch.setattr("qualityhub.inspections.services.inspection_start", start)
    monkeypatch.setattr("qualityhub.inspections.services.generation_of", lambda version: 0)
    with pytest.raises(RuntimeError, match="True"):
        audits.audit_run(team=team, actor="o")


def test_worker_takes_only_what_it_can_do(queue):
    (special,) = queue(Needs(labels=(("zone", "b"),)))
    (plain,) = queue(Needs())
    here = Fits(FULL)
    assert claims.batch_claim("here", here).batch.pk == plain.pk
    assert claims.batch_claim("here", here) is None
    there = Fits(Offer("there", labels={"zone": "b"}))
    assert claims.batch_claim("there", there).batch.pk == special.pk


def test_long_backlog_of_what_it_cannot_do_does_not_hide_what_it_can(queue):
    queue(Needs(gpus=8), 200)
    (plain,) = queue(Needs(engine=True))
    assert claims.batch_claim("here", Fits(FULL)).batch.pk == plain.pk


def test_ticket_is_passed_on_to_who_can_do_what_waits(queue, sent_tasks, script):
    queue(Needs(labels=(("zone", "b"),)))
    workers.worker_beat("there", Offer("there", labels={"zone": "b"}), 1)
    bench = Bench("here", offer=FULL)
    sent_tasks.sent.clear()
    assert draining.drain(bench) == 0
    assert sent_tasks.sent == []  # Sent on commit.
    draining.drain(bench, hops=draining.MOST_HOPS)
    silent("there", 100)
    assert draining.needs_waiting(bench.fits.unfit) == set(workers.needs_blocked())


@pytest.mark.django_db(transaction=True)
def test_passed_on_ticket_counts_its_hops(queue, sent_tasks, script):
    queue(Needs(labels=(("zone", "b"),)))
    workers.worker_beat("there", Offer("there", labels={"zone": "b"}), 1)
    bench = Bench("here", offer=FULL)
    sent_tasks.sent.clear()
    draining.drain(bench, hops=3)
    assert sent_tasks.sent == [("inspections.drain", (4,), "inspect")]
    sent_tasks.sent.clear()
    draining.drain(bench, hops=draining.MOST_HOPS)
    silent("there", 100)
    draining.drain(bench)
    assert sent_tasks.sent == []


@pytest.mark.django_db(transaction=True)
def test_ticket_is_passed_on_also_after_something_was_done(queue, sent_tasks, script, monkeypatch):
    queue(Needs(labels=(("zone", "b"),)))
    queue(Needs())
    workers.worker_beat("there", Offer("there", labels={"zone": "b"}), 1)
    bench = Bench("here", offer=FULL)
    monkeypatch.setattr(bench, "work", lambda lease: claims.batch_done(lease.batch))
    sent_tasks.sent.clear()
    assert draining.drain(bench, 60) == 1
    assert sent_tasks.sent == [("inspections.drain", (1,), "inspect")]


def test_work_that_no_live_worker_can_do_is_said_after_some_patience(queue, settings):
    settings.QH_WORKER_PATIENCE_S = 600
    queue(Needs(engine=True, arch="x86_64"))
    workers.worker_beat("plain", Offer("p", arch="x86_64"), 1)
    assert workers.waits_update() == []
    assert Inspection.objects.get().waits_for == ""
    Batch.objects.update(created_at=timezone.now() - timedelta(minutes=11))
    workers.waits_update()
    inspection = Inspection.objects.select_related("job").get()
    said = "It needs a worker with a container engine; none was seen for 10 min."
    assert (inspection.waits_for, inspection.job.progress_message) == (said, said)
    assert inspection.waits_since is not None
    workers.worker_beat("engine", Offer("e", arch="x86_64", engine=True), 1)
    workers.waits_update()
    inspection = Inspection.objects.select_related("job").get()
    assert (inspection.waits_for, inspection.waits_since) == ("", None)
    assert inspection.job.progress_message == "a worker can go on with it"
    assert claims.batch_claim("engine", Fits(Offer("e", arch="x86_64", engine=True))) is not None


def test_patience_begins_when_the_last_able_worker_was_seen(queue, settings):
    settings.QH_WORKER_PATIENCE_S = 600
    queue(Needs(engine=True))
    Batch.objects.update(created_at=timezone.now() - timedelta(hours=2))
    workers.worker_beat("plain", Offer("p"), 1)
    workers.worker_beat("engine", Offer("e", engine=True), 1)
    silent("engine", 500)
    workers.waits_update()
    assert Inspection.objects.get().waits_for == ""
    silent("engine", 700)
    workers.waits_update()
    assert "a container engine" in Inspection.objects.get().waits_for


def test_nobody_is_called_for_what_nobody_can_do(queue, monkeypatch):
    from qualityhub.inspections import tickets

    monkeypatch.setattr(tickets, "tickets_waiting", lambda: 0)
    queue(Needs(engine=True), 3)
    workers.worker_beat("plain", Offer("p"), 1)
    assert draining.reap()["tickets"] == 0
    workers.worker_beat("engine", Offer("e", engine=True), 1)
    assert draining.reap()["tickets"] == 3


def test_preparation_asks_for_an_engine_where_some_worker_has_one(version):
    version.placement = {"image": True, "python": ">=3.12", "labels": {"zone": "a"}}
    only_labels = Needs(labels=(("zone", "a"),))
    assert planning.prepare_needs(version) == only_labels
    workers.worker_beat("full", FULL, 1)
    assert planning.prepare_needs(version) == Needs(
        engine=True, python=">=3.12", labels=(("zone", "a"),)
    )
    silent("full", 10_000)
    assert planning.prepare_needs(version) == only_labels


def test_refused_inspection_goes_to_another_worker(upload, start, script, monkeypatch):
    from qualityhub.inspections import bench as module

    inspection = start(upload(50))
    first = Bench("first:1", offer=Offer("session-1", provider="scripted", arch="", cpus=1))
    monkeypatch.setattr(module.Bench, "_world", refuse_in({"first:1"}, module.Bench._world))
    monkeypatch.setattr(planning.TrialNeeds, "of_task", only_without)
    while draining.drain(first, 60):
        pass
    inspection.refresh_from_db()
    assert (inspection.status, list(inspection.refused)) == ("running", ["session-1"])
    waiting = Batch.objects.filter(inspection=inspection, status="queued")
    assert set(waiting.values_list("kind", "attempts")) == {("trials", 0)}
    assert Need.objects.get(pk=waiting.first().needs).document == {"without": ["session-1"]}
    second = Bench("second:1", offer=Offer("session-2", provider="scripted"))
    while draining.drain(second, 60):
        pass
    inspection.refresh_from_db()
    assert (inspection.status, inspection.verdict) == ("finished", "admitted")


def test_worlds_that_no_live_worker_can_make_are_prepared_again(
    upload, start, script, monkeypatch, settings
):
    from qualityhub.inspections import bench as module

    settings.QH_WORKER_PATIENCE_S = 60
    inspection = start(upload(50))
    offer = Offer("session-1", provider="scripted")
    bench = Bench("first:1", offer=offer)
    workers.worker_beat("first", offer, 1)
    whole = module.Bench._world
    refusing = {"first:1"}
    monkeypatch.setattr(module.Bench, "_world", refuse_in(refusing, whole))
    monkeypatch.setattr(planning.TrialNeeds, "of_task", only_without)
    for attempt in range(3):
        while draining.drain(bench, 60):
            pass
        Batch.objects.update(created_at=timezone.now() - timedelta(minutes=5))
        assert workers.waits_update() == [inspection.pk]
        inspection.refresh_from_db()
        assert "the very world it was prepared in" in inspection.waits_for
        if attempt == 1:
            break
        draining.reap()
        inspection.refresh_from_db()
        assert (inspection.status, inspection.refused) == ("preparing", {})
        assert not InspectionTrial.objects.filter(inspection=inspection).exists()
    refusing.clear()
    draining.reap()
    while draining.drain(bench, 60):
        pass
    inspection.refresh_from_db()
    assert (inspection.status, inspection.verdict) == ("finished", "admitted")
    assert inspection.trials_done == inspection.trials_total


def test_worlds_lost_again_and_again_are_our_error(upload, start, script, monkeypatch, settings):
    from qualityhub.inspections import bench as module

    settings.QH_WORKER_PATIENCE_S = 60
    inspection = start(upload(3))
    offer = Offer("session-1", provider="scripted")
    bench = Bench("first:1", offer=offer)
    workers.worker_beat("first", offer, 1)
    monkeypatch.setattr(module.Bench, "_world", refuse_in({"first:1"}, module.Bench._world))
    monkeypatch.setattr(planning.TrialNeeds, "of_task", only_without)
    for _ in range(3):
        while draining.drain(bench, 60):
            pass
        Batch.objects.update(created_at=timezone.now() - timedelta(minutes=5))
        draining.reap()
    inspection.refresh_from_db()
    assert (inspection.status, inspection.error_code) == ("errored", "inspection.worlds_lost")
    job = inspection.job
    job.refresh_from_db()
    for told in (inspection.error_message, job.error_message):
        assert inspection.public_id in told
        assert "first:1" not in told
    assert Batch.objects.filter(inspection=inspection, last_error="first:1 cannot").exists()


def refuse_in(names, otherwise):
    def world(bench, environment, task_id, document):
        if bench.worker in names:
            raise CannotHereError(f"{bench.worker} cannot")
        return otherwise(bench, environment, task_id, document)

    return world


def only_without(planner, task_id):
    """The scripted world has no host of its own."""
    return Needs(without=planner._common.without)


def test_trials_need_the_world_they_were_prepared_in_and_the_size_of_their_task(
    upload, judge, script
):
    from dataclasses import replace

    from qualityhub.engine.environments.model import Environment, Task
    from qualityhub.engine.trials.model import World

    inspection = judge(upload(2))
    inspection.inputs = {**inspection.inputs, "host": {"arch": "x86_64"}, "ownership": "yes"}
    inspection.refused = {"gone": "why"}
    small = Task("small", {}, "qh1:s", {"memory_mb": 512})
    large = Task("large", {}, "qh1:l", {"memory_mb": 65536, "cpus": 8, "gpus": 1})
    environment = Environment("e", "harbor", "task", "qh1:e", (small, large))
    rehearsed = World("ready", provider="bwrap", python="3.12.1", digest="w1")
    image = replace(rehearsed, base="qh1:image", digest="w2")
    needs = planning.TrialNeeds(inspection, environment, {"small": rehearsed, "large": image})
    common = Needs(arch="x86_64", provider="bwrap", ownership="yes", without=("gone",))
    assert needs.of_task("small") == replace(common, python="==3.12.1", memory_mib=512)
    assert needs.of_task("large") == replace(common, engine=True, memory_mib=65536, cpus=8, gpus=1)


def test_this_host_offers_what_it_has(settings, tmp_path, monkeypatch):
    import os
    import platform

    from qualityhub.engine.errors import SandboxUnavailableError
    from qualityhub.inspections import offers

    def none(kind, home):
        raise SandboxUnavailableError("sandbox.unavailable", "none")

    monkeypatch.setattr(offers, "select_sandbox", none)
    monkeypatch.setattr(offers, "engine_address", lambda: "")
    settings.QH_WORKER_LABELS = {"zone": "a"}
    offer = offers.host_offer("s")
    assert (offer.provider, offer.engine, offer.ownership) == ("", False, False)
    assert (offer.arch, offer.labels) == (platform.machine(), {"zone": "a"})
    assert offer.cpus == len(os.sched_getaffinity(0))
    assert 64 < offer.memory_mib < 2**24
    assert platform.python_version() in offer.pythons
    limit = tmp_path / "limit"
    limit.write_text(f"{100 * offers.MIB}\n")
    monkeypatch.setattr(offers, "_CGROUP_LIMITS", (str(tmp_path / "none"), str(limit)))
    assert offers.host_offer("s").memory_mib == 100


def test_engine_that_appears_widens_what_a_bench_takes(queue, script, monkeypatch):
    from qualityhub.inspections import bench as module

    queue(Needs(engine=True))
    bench = Bench("here", offer=Offer("here", engine=False))
    monkeypatch.setattr(module, "engine_address", lambda: "")
    bench.look_again()
    assert claims.batch_claim("here", bench.fits) is None
    monkeypatch.setattr(module, "engine_address", lambda: "unix:///engine")
    bench.look_again()
    assert claims.batch_claim("here", bench.fits) is not None
