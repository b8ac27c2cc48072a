"""Bring the database up to date and make the first team: ``python -m …standalone.firstrun``.

Runs as a child of the supervisor, the only place there that sets Django up. The sign-in links go
through a pipe, never into a log.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qualityhub.engine.errors import ConflictError, MachineryError, QualityHubError

if TYPE_CHECKING:
    from collections.abc import Iterator

_LOCK_KEY = 0x5148_6D69  # "QHmi": one migration at a time per database.
_WAIT_S = 60
_LOCK_TIMEOUT = "4s"
_STATEMENT_TIMEOUT = "120s"


@dataclass(frozen=True, slots=True)
class FirstRunResult:
    """What the supervisor needs to print.

    Attributes:
        created: Whether the team was made by this start.
        email: The administrator's address.
        links: Paths of one-time sign-in links.
    """

    created: bool
    email: str
    links: tuple[str, ...]


def parse_result(raw: bytes) -> FirstRunResult:
    """Return what the child wrote into the pipe.

    Raises:
        MachineryError: ``up.setup_failed`` when it wrote nothing of use.
    """
    try:
        found = json.loads(raw)
        return FirstRunResult(bool(found["created"]), found["email"], tuple(found["links"]))
    except (ValueError, KeyError, TypeError) as error:
        raise MachineryError(
            "up.setup_failed", "The database's set-up ended without a result."
        ) from error


def main() -> int:
    """Migrate, make sure of the first team, and hand over sign-in links."""
    parser = argparse.ArgumentParser(prog="qualityhub.standalone.firstrun")
    parser.add_argument("--result-fd", type=int, required=True)
    parser.add_argument("--links", type=int, default=1)
    parser.add_argument("--sole", action="store_true", help="nobody else uses the database")
    options = parser.parse_args()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "qualityhub.settings")
    try:
        result = _run(options.links, sole=options.sole)
    except QualityHubError as error:
        sys.stderr.write(f"error: {error.message}\n")
        if error.hint:
            sys.stderr.write(f"hint: {error.hint}\n")
        return 2
    with os.fdopen(options.result_fd, "w", encoding="utf-8") as pipe:
        json.dump(
            {"created": result.created, "email": result.email, "links": result.links},
            pipe,
        )
    return 0


def _run(links: int, *, sole: bool) -> FirstRunResult:
    import django  # noqa: PLC0415 - the supervisor imports this module without Django.

    django.setup()
    with _migration_lock():
        _migrate()
    from qualityhub.accounts import services  # noqa: PLC0415 - needs Django set up.
    from qualityhub.platform.heartbeats import Heartbeat  # noqa: PLC0415 - as above.

    if sole:
        # Left by the last run: the hub must not call itself ready because of the dead.
        Heartbeat.objects.all().delete()
    email = os.environ.get("QH_INIT_EMAIL") or "admin@localhost"
    first = services.first_run_ensure(email, os.environ.get("QH_INIT_TEAM") or "Default")
    return FirstRunResult(
        created=first.created,
        email=first.user.email,
        links=tuple(services.sign_in_link_create(first.user) for _ in range(links)),
    )


def _migrate() -> None:
    """Apply what is missing; a lock that somebody holds ends the attempt instead of everybody."""
    from django.core.management import call_command  # noqa: PLC0415 - needs Django set up.
    from django.db import connection  # noqa: PLC0415 - as above.

    with connection.cursor() as cursor:
        cursor.execute(f"SET lock_timeout = '{_LOCK_TIMEOUT}'")
        cursor.execute(f"SET statement_timeout = '{_STATEMENT_TIMEOUT}'")
    call_command("migrate", interactive=False, verbosity=1, skip_checks=False, no_color=True)
    with connection.cursor() as cursor:
        cursor.execute("RESET lock_timeout")
        cursor.execute("RESET statement_timeout")


@contextmanager
def _migration_lock() -> Iterator[None]:
    """Hold the right to migrate this database; released with the connection at the latest."""
    from django.db import connection  # noqa: PLC0415 - needs Django set up.

    deadline = time.monotonic() + _WAIT_S
    with connection.cursor() as cursor:
        while True:
            cursor.execute("SELECT pg_try_advisory_lock(%s)", [_LOCK_KEY])
            if cursor.fetchone()[0]:
                break
            if time.monotonic() >= deadline:
                raise ConflictError(
                    "up.migrating_elsewhere",
                    f"Another process has been migrating this database for {_WAIT_S} s.",
                    "Wait for it to end, or end it, then start again.",
                )
            time.sleep(0.5)
        try:
            yield
        finally:
            cursor.execute("SELECT pg_advisory_unlock(%s)", [_LOCK_KEY])


if __name__ == "__main__":
    sys.exit(main())
