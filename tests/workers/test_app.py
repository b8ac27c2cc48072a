from __future__ import annotations

import time
from datetime import timedelta

import pytest
from django.utils import timezone

from qualityhub.platform import queue
from qualityhub.platform.heartbeats import Heartbeat


def test_workers_and_producers_share_one_configuration(celery_app):
    for key, value in queue.celery_config().items():
        if key != "task_queues":
            assert celery_app.conf[key] == value, key
    assert celery_app.conf.task_soft_time_limit < celery_app.conf.task_time_limit
    assert celery_app.conf.broker_transport_options["visibility_timeout"] > (
        celery_app.conf.task_time_limit
    )


def test_everything_scheduled_is_a_known_task_on_a_known_queue(celery_app):
    from workers.schedule import schedule

    assert schedule()
    for name, entry in schedule().items():
        assert entry["task"] in celery_app.tasks, name
        assert entry["options"]["queue"] in queue.QUEUES, name


def test_every_task_has_a_name_of_ours(celery_app):
    ours = [name for name in celery_app.tasks if not name.startswith("celery.")]
    assert "housekeeping.expire" in ours
    assert all(name.count(".") == 1 for name in ours)


@pytest.mark.django_db(transaction=True)
def test_worker_beats_until_it_ends():
    from workers import heartbeats

    heartbeats.start_worker("w1@here")
    deadline = time.monotonic() + 10
    while not Heartbeat.objects.filter(name="w1@here").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert Heartbeat.objects.get().labels["arch"]
    heartbeats.stop_worker()
    assert not Heartbeat.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_scheduler_shows_that_it_turns():
    from celery import Celery

    from workers.heartbeats import BeatingScheduler

    scheduler = BeatingScheduler(app=Celery("idle", set_as_current=False), lazy=True)
    assert scheduler.tick() <= 10
    assert Heartbeat.objects.get(name="beat").kind == "beat"


def test_unreachable_database_does_not_end_the_worker(monkeypatch, caplog):
    from qualityhub.platform.heartbeats import HeartbeatKind
    from workers import heartbeats

    def broken(*_args):
        raise OSError("no route")

    monkeypatch.setattr(heartbeats, "heartbeat", broken)
    monkeypatch.setattr(heartbeats, "connection", type("C", (), {"close": lambda _: None})())
    heartbeats.beat_once("w1", HeartbeatKind.WORKER, {})
    assert any(record.message == "heartbeat_failed" for record in caplog.records)


@pytest.mark.django_db
def test_housekeeping_forgets_only_what_has_expired(owner, celery_app):
    from qualityhub.accounts.models import SignInLink
    from qualityhub.accounts.services import sign_in_link_create
    from qualityhub.platform.idempotency import IdempotencyKey

    for key in ("old", "new"):
        IdempotencyKey.objects.create(actor="a", key=key, path="p", body_digest="d", status=201)
    IdempotencyKey.objects.filter(key="old").update(created_at=timezone.now() - timedelta(days=2))
    sign_in_link_create(owner)
    sign_in_link_create(owner)
    first = SignInLink.objects.order_by("id").first()
    SignInLink.objects.filter(pk=first.pk).update(expires_at=timezone.now() - timedelta(hours=1))
    outcome = celery_app.tasks["housekeeping.expire"]()
    assert (outcome["idempotency_keys"], outcome["sign_in_links"]) == (1, 1)
    assert IdempotencyKey.objects.get().key == "new"
    assert SignInLink.objects.count() == 1
