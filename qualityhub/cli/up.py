"""Commands that run a hub on this machine; what they do lives in `qualityhub.standalone`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Literal

import click

from qualityhub.cli.options import DURATION, option

DEFAULT_PORT = 8400

home_option = option(
    "--home",
    type=click.Path(file_okay=False, path_type=Path),
    help="Data folder. Default: QH_HOME, else /var/lib/qualityhub for root and the user's data "
    "folder for everybody else.",
)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@click.command()
@option("--demo", is_flag=True, help="Load example environments and checkpoints once ready.")
@option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on. Anything but this machine's loopback is a risk without a proxy.",
)
@option(
    "--port",
    type=click.IntRange(0, 65535),
    default=DEFAULT_PORT,
    show_default=True,
    help="Port to listen on; 0 takes a free one.",
)
@home_option
@option(
    "--workers",
    type=click.IntRange(1, 256),
    default=lambda: max(1, min(8, _cores())),
    show_default="one per core, 8 at most",
    help="Batches of trials that run at the same time.",
)
@option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Lines for people, or one JSON object per line.",
)
@option("--verbose", "-v", is_flag=True, help="Show every line of every part, not warnings alone.")
def up(
    *,
    demo: bool,
    host: str,
    port: int,
    home: Path | None,
    workers: int,
    log_format: str,
    verbose: bool,
) -> int:
    """Start everything on this machine: database, broker, web, worker, scheduler.

    Stays until Ctrl-C. The database and the broker come with the installation, unless
    QH_DATABASE_URL or QH_BROKER_URL name others. Prints a one-time sign-in link once ready.

    Exit codes: 0 ended as asked, 2 could not start (port taken, already running, wrong setting),
    4 a part failed.
    """
    from qualityhub.standalone.supervisor import UpOptions, run

    return run(UpOptions(host, port, home, workers, demo, log_format, verbose))


@click.command()
@home_option
@option("--wait", is_flag=True, help="Wait until it is ready.")
@option(
    "--timeout",
    type=DURATION,
    default="60s",
    show_default=True,
    help="How long to wait at most.",
)
@option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def status(home: Path | None, wait: bool, timeout: float, form: str) -> int:
    """Say whether the hub on this machine runs and is ready.

    Exit codes: 0 ready, 1 running but not ready, 3 not running.
    """
    from qualityhub.standalone.control import look

    found = look(home, wait_s=timeout if wait else 0)
    click.echo(json.dumps(found.as_json()) if form == "json" else found.as_text())
    return found.exit_code


@click.command()
@home_option
@option(
    "--timeout",
    type=DURATION,
    default="90s",
    show_default=True,
    help="How long to wait for its end.",
)
def stop(home: Path | None, timeout: float) -> int:
    """Stop the hub on this machine in order. Exit code 3: it was not running."""
    from qualityhub.standalone.control import end

    pid = end(home, timeout)
    click.echo("not running" if pid is None else f"stopped (pid {pid})")
    return 3 if pid is None else 0


@click.command()
@click.argument("name", required=False)
@home_option
@option("--lines", "-n", type=click.IntRange(1, 100_000), default=50, show_default=True)
@option("--follow", "-f", is_flag=True, help="Keep printing what is added.")
def logs(name: str | None, home: Path | None, lines: int, follow: bool) -> int:
    """Print the last lines of one part, or of all.

    Parts are web, worker, beat, postgres, broker, setup and demo.
    """
    from qualityhub.standalone.control import log_lines

    for line in log_lines(home, name, lines, follow=follow):
        click.echo(line)
    return 0


@click.command()
@home_option
@option("--host", default="127.0.0.1", show_default=True, help="Address `up` would listen on.")
@option("--port", type=click.IntRange(0, 65535), default=DEFAULT_PORT, show_default=True)
@option(
    "--conformance",
    type=click.Choice(["auto", "bwrap", "container"]),
    help="Instead, run hostile programs in this sandbox and tell what it holds, softly or not; "
    "takes about a minute.",
)
@option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def doctor(
    home: Path | None,
    host: str,
    port: int,
    conformance: Literal["auto", "bwrap", "container"] | None,
    form: str,
) -> int:
    """Check what this machine can do: sandboxes, Python, disk, port, database, broker.

    Exit codes: 0 everything needed is there, 1 something needed is missing.
    """
    if conformance is not None:
        from qualityhub.cli.conformance import run
        from qualityhub.standalone.layout import find_home

        return run(conformance, find_home(home).root, form)
    from qualityhub.standalone.doctor import examine, worst

    checks = examine(home, host, port)
    if form == "json":
        click.echo(
            json.dumps({"ok": worst(checks) != "fail", "checks": [c.as_json() for c in checks]})
        )
    else:
        for check in checks:
            click.echo(check.as_text())
    return 1 if worst(checks) == "fail" else 0
