"""The Celery application: ``celery -A workers.app:app worker``.

Tasks are thin: they load ids, call services and the engine, and store. Every module in
``workers/tasks/`` is imported; when they run by themselves is in ``workers/schedule.py``.
"""

from __future__ import annotations

import os
import pkgutil
from pathlib import Path
from typing import Any

import django
from celery import Celery
from celery.signals import beat_init, setup_logging, task_prerun, worker_ready, worker_shutdown

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "qualityhub.settings")
# The checks load every page and endpoint, which workers never serve; `migrate` has run them.
os.environ.setdefault("CELERY_SKIP_CHECKS", "true")
django.setup(set_prefix=False)

from qualityhub.platform.checks import refuse_unfit_settings  # noqa: E402 - needs Django set up.
from qualityhub.platform.queue import celery_config  # noqa: E402
from qualityhub.platform.requestid import bind_request_id  # noqa: E402
from workers import heartbeats  # noqa: E402
from workers.schedule import schedule  # noqa: E402
from workers.upkeep import StoreKeeper  # noqa: E402

refuse_unfit_settings()

app = Celery("qualityhub")
app.conf.update(celery_config())
app.conf.update(
    imports=[
        f"workers.tasks.{module.name}"
        for module in pkgutil.iter_modules([str(Path(__file__).parent / "tasks")])
    ],
    beat_schedule=schedule(),
    beat_scheduler="workers.heartbeats:BeatingScheduler",
    # The longest ticket drains for some seconds; these end a task that hangs in our own code.
    task_soft_time_limit=600,
    task_time_limit=660,
    worker_max_tasks_per_child=500,
)


@setup_logging.connect
def keep_logging(**_: Any) -> None:
    """Leave logging as Django's settings made it; Celery would replace it otherwise."""


@task_prerun.connect
def bind_task(task_id: str = "", **_: Any) -> None:
    """Let log lines and audit rows carry the task's id."""
    bind_request_id(task_id)


@worker_ready.connect
def worker_is_ready(sender: Any = None, **_: Any) -> None:
    """Begin to show that this worker lives, and to look after its host's store."""
    heartbeats.start_worker(str(sender.hostname))
    StoreKeeper().start()


@worker_shutdown.connect
def worker_ends(**_: Any) -> None:
    """Stop showing it at once, so that readiness does not lag behind."""
    heartbeats.stop_worker()


@beat_init.connect
def beat_begins(**_: Any) -> None:
    """Show the scheduler's first sign of life before its first tick."""
    heartbeats.beat_tick()
