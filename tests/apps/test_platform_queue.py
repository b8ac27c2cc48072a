from __future__ import annotations

import pytest
from django.db import transaction

from qualityhub.platform import queue


@pytest.mark.django_db
def test_task_is_sent_after_commit_only(sent_tasks, django_capture_on_commit_callbacks):
    with django_capture_on_commit_callbacks(execute=True), transaction.atomic():
        queue.enqueue("inspections.drain", "insp_1", queue=queue.INSPECT)
        assert sent_tasks.sent == []
    assert sent_tasks.sent == [("inspections.drain", ("insp_1",), "inspect")]


@pytest.mark.django_db
def test_rolled_back_work_sends_nothing(sent_tasks, django_capture_on_commit_callbacks):
    def work():
        with transaction.atomic():
            queue.enqueue("x.y")
            raise RuntimeError("rolled back")

    with (
        django_capture_on_commit_callbacks(execute=True),
        pytest.raises(RuntimeError, match="rolled back"),
    ):
        work()
    assert sent_tasks.sent == []


def test_unknown_queue_is_refused():
    with pytest.raises(ValueError, match="fast"):
        queue.enqueue("x.y", queue="fast")


@pytest.fixture
def real_send(monkeypatch, settings):
    """The real sender, with a broker at the given address."""
    import importlib

    monkeypatch.undo()
    fresh = importlib.reload(queue)
    yield fresh
    fresh.producer.cache_clear()


def test_unreachable_broker_is_logged_not_raised(real_send, settings, caplog):
    settings.QH_BROKER_URL = "redis://127.0.0.1:1/0"
    assert real_send.send("x.y", ("job_1",), "quick") is False
    assert any(record.message == "enqueue_failed" for record in caplog.records)


def test_configuration_declares_every_queue_and_no_other():
    config = queue.celery_config()
    assert [declared.name for declared in config["task_queues"]] == list(queue.QUEUES)
    assert config["task_create_missing_queues"] is False
    # A queue without an exchange of its own would share the default one, and get everything.
    assert all(
        (declared.exchange.name, declared.routing_key) == (declared.name, declared.name)
        for declared in config["task_queues"]
    )
    assert config["accept_content"] == ["json"]
    assert (config["task_acks_late"], config["worker_prefetch_multiplier"]) == (True, 1)
    assert config["worker_hijack_root_logger"] is False
    options = config["broker_transport_options"]
    assert options["unacked_restore_interval"] == 2
