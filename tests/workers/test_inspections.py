from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from qualityhub.inspections.models import AuditRun, Batch, Inspection
from qualityhub.inspections.services import inspection_start


@pytest.fixture
def going():
    """The worker's flag, put back afterwards."""
    from workers import stopping

    yield stopping
    stopping._flag[0] = 0


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # Python 3.12 and later.
def test_every_process_of_a_pool_hears_that_the_worker_ends(going):
    import multiprocessing

    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()

    def child():
        theirs.recv()
        theirs.send(going.stopping())

    process = context.Process(target=child)
    process.start()
    assert not going.stopping()
    going.begin()
    ours.send("look")
    assert ours.recv() is True
    process.join()


@pytest.mark.django_db
def test_ticket_without_work_ends_at_once(celery_app):
    assert celery_app.tasks["inspections.drain"]() == 0


@pytest.mark.django_db
def test_ticket_claims_nothing_once_the_worker_ends(celery_app, going, version):
    inspection_start(version=version, actor="owner@example.org")
    going.begin()
    assert celery_app.tasks["inspections.drain"]() == 0
    assert Batch.objects.get().status == "queued"


@pytest.mark.django_db
def test_version_whose_files_are_lost_ends_as_our_error(celery_app, version):
    """The rows of this version have no package behind them."""
    inspection = inspection_start(version=version, actor="owner@example.org")
    for _ in range(5):
        Batch.objects.update(ready_at=timezone.now() - timedelta(minutes=1))
        celery_app.tasks["inspections.drain"]()
    assert celery_app.tasks["inspections.reap"]()["given_up"] == 1
    inspection.refresh_from_db()
    assert (inspection.status, inspection.error_code) == ("errored", "inspection.given_up")
    assert "Error" in Batch.objects.get().last_error
    assert "Error" not in inspection.error_message


@pytest.mark.django_db
def test_sweep_brings_back_lost_batches(celery_app, version, sent_tasks, monkeypatch):
    from qualityhub.inspections import claims, tickets

    monkeypatch.setattr(tickets, "tickets_waiting", lambda: 0)
    inspection_start(version=version, actor="owner@example.org")
    claims.batch_claim("lost")
    Batch.objects.update(lease_until=timezone.now() - timedelta(seconds=1))
    assert celery_app.tasks["inspections.reap"]() == {"expired": 1, "given_up": 0, "tickets": 1}
    assert Batch.objects.get().last_error == "its worker fell silent"


@pytest.mark.django_db
def test_unreachable_broker_does_not_stop_the_sweep(celery_app, version, monkeypatch):
    from qualityhub.inspections import tickets

    def unreachable():
        raise OSError("nobody listens")

    monkeypatch.setattr(tickets, "tickets_waiting", unreachable)
    inspection_start(version=version, actor="owner@example.org")
    assert celery_app.tasks["inspections.reap"]()["tickets"] == 0


@pytest.mark.django_db
def test_night_starts_audits(celery_app, version):
    version.admission = "admitted"
    version.save()
    (run,) = celery_app.tasks["audits.nightly"]()
    assert AuditRun.objects.get(public_id=run).started == 1
    assert Inspection.objects.get().audit_reason == "never inspected to the end"
