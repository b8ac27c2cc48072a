"""Which hub to talk to, and how waiting for it looks."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from qualityhub.cli.console import say
from qualityhub.engine.errors import InvalidInputError
from qualityhub.engine.reports.safe import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from qualityhub.client import Job, QualityHubClient


def connect(url: str | None, token: str | None) -> QualityHubClient:
    """Return a client of the hub that was named, else of the one that ``login`` remembered.

    A remembered token is only used with the address it belongs to.

    Raises:
        InvalidInputError: No hub is named and none is remembered.
    """
    from qualityhub.client import QualityHubClient
    from qualityhub.client.config import checked_url, is_exposed, read_login

    login = read_login()
    if url:
        url = checked_url(url)
        token = token or (login.token if login is not None and login.url == url else "")
    elif login is not None:
        url, token = login.url, token or login.token
    else:
        raise InvalidInputError(
            "login.no_hub",
            "No hub is named.",
            "Set QH_URL (and QH_TOKEN), or run: qualityhub login",
        )
    if token and is_exposed(url):
        say(f"warning: the token travels to {url} without encryption")
    return QualityHubClient(url, token)


def job_line() -> Callable[[Job], None]:
    """Return something that shows how a job goes on: one line on a terminal, else nothing."""
    shown = ""

    def show(job: Job) -> None:
        nonlocal shown
        if not sys.stderr.isatty():
            return
        total = f"/{job.total:,}" if job.total else ""
        line = f"{job.status} {job.done:,}{total} {printable(job.message, 100)}".rstrip()
        if line != shown:
            shown = line
            sys.stderr.write(f"\r\x1b[2K{line}" + ("\n" if job.ended else ""))
            sys.stderr.flush()

    return show
