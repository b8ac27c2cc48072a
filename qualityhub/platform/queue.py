"""The way to the workers: a task's name and ids, sent after commit.

A lost or unreachable broker is never the caller's problem: the work is a row already, and the
scheduler pokes the workers again when rows wait.
"""

from __future__ import annotations

import logging
from functools import cache
from typing import Any

from celery import Celery
from django.conf import settings
from django.db import transaction
from kombu import Exchange, Queue

logger = logging.getLogger(__name__)
QUICK, INSPECT, GATE, NOTIFY, HOUSEKEEPING = "quick", "inspect", "gate", "notify", "housekeeping"
QUEUES = (QUICK, INSPECT, GATE, NOTIFY, HOUSEKEEPING)


def celery_config() -> dict[str, Any]:
    """Return the configuration that producers and workers share."""
    return {
        "broker_url": settings.QH_BROKER_URL,
        "broker_connection_retry_on_startup": True,
        "broker_connection_timeout": 3,
        "broker_transport_options": {
            "visibility_timeout": settings.QH_BROKER_VISIBILITY_S,
            # The sweep for lost tickets runs every tenth tick of this many seconds; its default
            # takes about 100 s.
            "unacked_restore_interval": 2,
            "unacked_restore_throttle": 1,
            "socket_connect_timeout": 3,
            "socket_timeout": 30,
            "global_keyprefix": "",
        },
        "result_backend": None,
        "task_ignore_result": True,
        "task_serializer": "json",
        "result_serializer": "json",
        "accept_content": ["json"],
        "task_default_queue": QUICK,
        "task_queues": [Queue(name, Exchange(name), routing_key=name) for name in QUEUES],
        "task_create_missing_queues": False,
        "task_acks_late": True,
        "task_reject_on_worker_lost": True,
        "task_publish_retry": True,
        "task_publish_retry_policy": {
            "max_retries": 1,
            "interval_start": 0,
            "interval_step": 0.2,
            "interval_max": 0.2,
        },
        "worker_prefetch_multiplier": 1,
        "worker_hijack_root_logger": False,
        "worker_send_task_events": False,
        "timezone": "UTC",
        "enable_utc": True,
    }


@cache
def producer() -> Celery:
    """Return the sending half of Celery, made on first use."""
    app = Celery("qualityhub-producer", set_as_current=False)
    app.conf.update(celery_config())
    return app


def enqueue(task: str, *args: str | int, queue: str = QUICK) -> None:
    """Send a task by name once the current transaction has committed.

    Args:
        task: Registered name, e.g. ``inspections.drain``.
        args: Ids alone; the rows hold everything else.
        queue: One of ``QUEUES``.

    Raises:
        ValueError: An unknown queue; a mistake of ours, found by the first test that runs it.
    """
    if queue not in QUEUES:
        raise ValueError(f"No queue is called {queue!r}.")
    transaction.on_commit(lambda: send(task, args, queue))


def send(task: str, args: tuple[str | int, ...], queue: str) -> bool:
    """Send now; False where the broker was not reached, which is logged and made good later."""
    try:
        producer().send_task(task, args=args, queue=queue)
    except Exception:  # Whatever breaks here, the work is stored and its caller was told so.
        logger.exception("enqueue_failed", extra={"fields": {"task": task, "queue": queue}})
        return False
    return True


def broker_ping(timeout_s: int = 2) -> None:
    """Reach the broker once.

    Raises:
        Exception: Whatever the transport says is wrong.
    """
    connection = producer().connection_for_write()
    try:
        connection.ensure_connection(max_retries=1, interval_start=0, timeout=timeout_s)
    finally:
        connection.release()
