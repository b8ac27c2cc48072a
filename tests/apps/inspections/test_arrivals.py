"""When a verdict that is pending for want of an engine is gone on with."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from qualityhub.inspections import draining, planning, workers
from qualityhub.inspections.arrivals import engine_arrived
from qualityhub.inspections.choices import Priority
from qualityhub.inspections.models import Inspection, Need, Worker
from qualityhub.inspections.needs import Offer

pytestmark = pytest.mark.django_db


@pytest.fixture
def pending(upload, judge):
    """``pending(labels=...)`` leaves a version with an image whose verdict is pending."""

    def make(**placement):
        version = upload(3)
        first = judge(version)
        version.placement = {"image": True, **placement}
        version.save()
        Inspection.objects.filter(pk=first.pk).update(verdict="pending")
        return version

    return make


def end(**fields):
    """End all inspections as pending, as if prepared and judged."""
    values = {"status": "finished", "verdict": "pending", "finished_at": timezone.now(), **fields}
    Inspection.objects.update(**values)


def forget_needs():
    from qualityhub.inspections.models import Batch

    Batch.objects.filter(status__in=("queued", "leased")).update(status="done")
    Need.objects.update(used_at=timezone.now() - timedelta(days=3))
    planning.needs_purge()
    assert not Need.objects.exists()


def test_verdict_pending_for_want_of_an_engine_is_taken_up_when_one_appears(upload, judge, script):
    from qualityhub.inspections.arrivals import engine_arrived

    version = upload(3)
    first = judge(version)
    Inspection.objects.filter(pk=first.pk).update(verdict="pending")
    assert engine_arrived() == 0
    workers.worker_beat("engine", Offer("e", engine=True), 1)
    assert engine_arrived() == 0, "it has no image"
    version.placement = {"image": True}
    version.save()
    assert engine_arrived() == 1
    second = Inspection.objects.exclude(pk=first.pk).get()
    assert (second.version_id, second.priority) == (version.pk, Priority.AUDIT)
    batch = second.batches.get()
    assert Need.objects.get(pk=batch.needs).document == {"engine": True}
    assert engine_arrived() == 0, "it is under way"
    Inspection.objects.filter(pk=second.pk).update(
        status="finished", verdict="pending", finished_at=timezone.now()
    )
    assert engine_arrived() == 0, "an engine did not help"


@pytest.mark.parametrize(
    ("placement", "partial"),
    [
        ({"labels": {"zone": "a"}}, {"labels": {"zone": "a"}}),
        ({"gpus": 2}, {"gpus": 2}),
    ],
)
def test_engine_on_a_worker_that_lacks_the_rest_of_the_wish_changes_nothing(
    pending, script, placement, partial
):
    version = pending(**placement)
    workers.worker_beat("a", Offer("a", engine=True), 1)
    workers.worker_beat("b", Offer("b", **partial), 1)
    assert not planning.prepare_needs(version).engine
    for _ in range(2):
        draining.reap()
        end()
    assert Inspection.objects.count() == 1
    workers.worker_beat("c", Offer("c", engine=True, **partial), 1)
    for _ in range(3):
        draining.reap()
        end()
    assert Inspection.objects.count() == 2


def test_version_is_taken_up_once_also_when_its_needs_are_forgotten(pending, script):
    pending()
    workers.worker_beat("engine", Offer("e", engine=True), 1)
    draining.reap()
    draining.reap()
    assert Inspection.objects.count() == 2
    for _ in range(2):
        end()
        forget_needs()
        draining.reap()
    assert Inspection.objects.count() == 2


def test_who_was_prepared_with_an_engine_at_first_is_not_taken_up(pending, start, script):
    version = pending()
    workers.worker_beat("engine", Offer("e", engine=True), 1)
    start(version)
    end()
    forget_needs()
    assert engine_arrived() == 0


def test_preparation_repeated_without_an_engine_waits_for_the_next_one(pending, start, script):
    from qualityhub.inspections.services import inspection_prepare_again

    version = pending()
    workers.worker_beat("engine", Offer("e", engine=True), 1)
    again = start(version)
    assert Inspection.objects.get(pk=again.pk).engine_asked
    Worker.objects.all().delete()
    inspection_prepare_again(again.pk)
    end()
    assert engine_arrived() == 0
    workers.worker_beat("engine", Offer("f", engine=True), 1)
    assert engine_arrived() == 1


def test_tasks_left_pending_beside_a_partial_verdict_are_taken_up(pending, script):
    pending()
    workers.worker_beat("engine", Offer("e", engine=True), 1)
    end(verdict="partial", task_counts={"admitted": 3})
    assert engine_arrived() == 0
    end(verdict="partial", task_counts={"admitted": 2, "pending": 1})
    assert engine_arrived() == 1


def test_many_that_no_worker_fits_do_not_hide_one_that_it_does(
    pending, script, monkeypatch, environment
):
    from qualityhub.inspections import arrivals
    from qualityhub.registry.services import environment_create

    monkeypatch.setattr(arrivals, "AT_ONCE", 1)
    first = pending(labels={"zone": "elsewhere"})
    other = environment_create(domain=environment.domain, name="Other", actor="o")
    second = Inspection.objects.get()
    assert second.version_id == first.pk
    version = type(first).objects.get(pk=first.pk)
    version.pk, version.public_id, version.environment = None, f"{first.public_id}x", other
    version.placement = {"image": True}
    version.save()
    job = second.job
    job.pk, job.public_id = None, f"{job.public_id}x"
    job.save()
    second.pk, second.public_id, second.version, second.job = None, "insp_x", version, job
    second.save()
    workers.worker_beat("engine", Offer("e", engine=True), 1)
    assert engine_arrived() == 1
    assert Inspection.objects.latest("pk").version_id == version.pk
