"""Health: alive at all, and ready to serve."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from qualityhub.platform.heartbeats import HeartbeatKind, heartbeat_age, heartbeats_alive
from qualityhub.platform.queue import broker_ping

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)
WORKER_SILENT_S = 30
BEAT_SILENT_S = 60


@require_safe
@never_cache
def healthz(request: HttpRequest) -> HttpResponse:  # noqa: ARG001
    """Answer as long as this process answers anything; asks nobody else."""
    return HttpResponse("ok\n", content_type="text/plain; charset=utf-8")


@require_safe
@never_cache
def readyz(request: HttpRequest) -> HttpResponse:  # noqa: ARG001
    """Answer 200 when database, migrations, broker, worker and scheduler are there, else 503."""
    checks = readiness()
    ready = all(check["ok"] for check in checks.values())
    document: dict[str, Any] = {"ready": ready, "checks": checks}
    if ready:
        document["workers"] = heartbeats_alive(HeartbeatKind.WORKER, WORKER_SILENT_S)
    response = JsonResponse(document, status=200 if ready else 503)
    # Starting up is no error; Django would log each poll as one.
    response._has_been_logged = True  # type: ignore[attr-defined] # noqa: SLF001
    return response


def readiness() -> dict[str, dict[str, Any]]:
    """Return every check with ``ok`` and ``detail``."""
    checks: tuple[tuple[str, Callable[[], str]], ...] = (
        ("database", _database),
        ("migrations", _migrations),
        ("broker", _broker),
        ("worker", lambda: _alive(HeartbeatKind.WORKER, WORKER_SILENT_S)),
        ("beat", lambda: _alive(HeartbeatKind.BEAT, BEAT_SILENT_S)),
    )
    return {name: _outcome(name, check) for name, check in checks}


def _outcome(name: str, check: Callable[[], str]) -> dict[str, Any]:
    try:
        wrong = check()
    except Exception as error:  # noqa: BLE001 - any failure means not ready; the log has the rest.
        # The answer is public: the exception's text may hold a host name or a password.
        logger.warning("not_ready", extra={"fields": {"check": name, "error": str(error)}})
        wrong = f"{type(error).__name__}"
    return {"ok": not wrong, "detail": wrong or "ok"}


def _database() -> str:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError as error:
        logger.warning("database_unreachable", extra={"fields": {"error": str(error)}})
        return "unreachable"
    return ""


def _migrations() -> str:
    executor = MigrationExecutor(connection)
    waiting = executor.migration_plan(executor.loader.graph.leaf_nodes())
    return f"{len(waiting)} not applied" if waiting else ""


def _broker() -> str:
    broker_ping()
    return ""


def _alive(kind: HeartbeatKind, silent_s: int) -> str:
    age = heartbeat_age(kind)
    if age is None:
        return "never seen"
    seconds = age.total_seconds()
    return f"silent for {seconds:.0f} s" if seconds > silent_s else ""
