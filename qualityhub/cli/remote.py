"""``login``, ``push`` and ``wait``: have a hub inspect."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from qualityhub.cli.console import FAILED, MACHINERY, OK, deliver, note, say, use_color, width
from qualityhub.cli.options import (
    DURATION,
    format_option,
    output_option,
    token_option,
    url_option,
)
from qualityhub.engine.errors import InvalidInputError, NotFoundError
from qualityhub.engine.reports.safe import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qualityhub.client import Job, QualityHubClient

PUSH_SCHEMA = "qualityhub.push/1"
JOB_SCHEMA = "qualityhub.job/1"


@click.command(short_help="Remember a hub's address and token.")
@click.argument("url", required=False, envvar="QH_URL")
@click.option(
    "--token",
    envvar="QH_TOKEN",
    help="Access token; without it, asked for on a terminal, else read from standard input.",
)
@click.option("--no-check", is_flag=True, help="Do not ask the hub whether the token works.")
def login(url: str | None, token: str | None, no_check: bool) -> None:
    """Remember a hub's address and token in a file that only you may read.

    URL is the hub's address; without it QH_URL.
    """
    from qualityhub.client import QualityHubClient
    from qualityhub.client.config import Login, checked_url, is_exposed, write_login

    if not url:
        raise click.UsageError("Name the hub: qualityhub login https://quality.example.org")
    url = checked_url(url)
    if is_exposed(url):
        say(f"warning: the token will travel to {url} without encryption")
    if not token:
        token = (
            click.prompt("Token", hide_input=True, err=True)
            if sys.stdin.isatty()
            else sys.stdin.readline()
        ).strip()
    if not token:
        raise InvalidInputError(
            "login.no_token", "No token was given.", "Create one at the hub, under Tokens."
        )
    who = ""
    if not no_check:
        with QualityHubClient(url, token) as hub:
            who = f" as {printable(hub.me().get('user', ''), 200)}"
    path = write_login(Login(url, token))
    say(f"logged in to {url}{who}; remembered in {path}")


@click.command(short_help="Upload an environment and have it inspected.")
@click.argument("source")
@click.option("--domain", required=True, help="The domain it belongs to, by slug or id.")
@click.option("--environment", "name", help="Its name at the hub; without it, the source's own.")
@click.option("--create-domain", is_flag=True, help="Create the domain where there is none.")
@click.option("--adapter", help="Read it as this format instead of detecting one.")
@click.option(
    "--effort", type=click.Choice(["quick", "standard", "certify"]), help="How much is tried."
)
@click.option(
    "--wait", "until_done", is_flag=True, help="Wait for the verdict and exit with its code."
)
@click.option("--timeout", type=DURATION, help="Wait at most so long (90s, 30m, 2h).")
@format_option("text", "json")
@output_option
@url_option
@token_option
@click.pass_context
def push(ctx: click.Context, /, source: str, **given: Any) -> None:
    """Upload an environment as a new version and have the hub inspect it.

    SOURCE is a file or folder, path/to/file.py:ClassName, or one of gymnasium:ID,
    reasoning-gym:NAME and the like. The same content again is the same version. With --wait the
    report is printed and the exit codes are those of 'qualityhub inspect'.
    """
    from qualityhub.cli.hub import connect, job_line

    with connect(given["url"], given["token"]) as hub:
        if given["create_domain"]:
            _ensure_domain(hub, given["domain"])
        version = _upload(hub, source, given)
        note(f"version {version['id']} of {printable(version.get('name', ''), 80)} is at the hub")
        trigger = "ci" if os.environ.get("CI") else "manual"
        job = hub.version_inspect(version["id"], effort=given["effort"] or "", trigger=trigger)
        if not given["until_done"]:
            _deliver_push(version, job, given)
            return
        job = hub.job_wait(job.id, timeout_s=given["timeout"], on_progress=job_line())
        ctx.exit(_end(hub, job, given))


@click.command(short_help="Wait for a job or an inspection and show its end.")
@click.argument("ref", metavar="JOB|INSPECTION|GATE")
@click.option("--timeout", type=DURATION, help="Wait at most so long (90s, 30m, 2h).")
@format_option("text", "json")
@output_option
@url_option
@token_option
@click.pass_context
def wait(ctx: click.Context, /, ref: str, **given: Any) -> None:
    """Wait for a job, an inspection or a gate at the hub, and show its end.

    The exit codes are those of 'qualityhub inspect' or 'qualityhub gate'; for other jobs 0 when
    it succeeded, 1 when it failed, 4 when our machinery did.
    """
    from qualityhub.cli.hub import connect, job_line

    with connect(given["url"], given["token"]) as hub:
        job_id = ref if ref.startswith("job_") else _job_of(hub, ref)
        job = hub.job_wait(job_id, timeout_s=given["timeout"], on_progress=job_line())
        ctx.exit(_end(hub, job, given))


def _ensure_domain(hub: QualityHubClient, domain: str) -> None:
    try:
        hub.domain(domain)
    except NotFoundError:
        hub.domain_create(domain, slug=domain)
        say(f"created the domain {printable(domain, 80)}")


def _upload(hub: QualityHubClient, source: str, given: Mapping[str, Any]) -> dict[str, Any]:
    place = upload_of(source)
    name = given["name"] or (source_name(source) if place is None else place[2])
    environment = hub.environment_ensure(name, given["domain"])
    if place is None:
        return hub.version_reference(environment["id"], source)
    path, entry, _ = place
    return hub.version_upload(environment["id"], path, entry=entry, adapter=given["adapter"] or "")


def upload_of(source: str) -> tuple[Path, str, str] | None:
    """Return what to pack, the entry in it, and a name; None for a source without files.

    Raises:
        InvalidInputError: It looks like a path, and nothing is there.
    """
    path = Path(source)
    if path.is_dir():
        return path, "", path.resolve().name
    if path.is_file():
        return path, path.name, path.stem
    head, colon, attribute = source.rpartition(":")
    if colon and Path(head).is_file():
        file = Path(head)
        return file.absolute().parent, f"{file.name}:{attribute}", attribute
    if not colon or "/" in head or head.startswith("."):
        raise InvalidInputError(
            "input.not_found",
            f"There is no file or folder {source}.",
            "Sources without files look like gymnasium:CartPole-v1.",
        )
    return None


def source_name(source: str) -> str:
    """Return a name for a source without files."""
    return source.partition(":")[2].rpartition("/")[2] or source


def _job_of(hub: QualityHubClient, ref: str) -> str:
    if ref.startswith("gate_"):
        document = hub.gate(ref)
    elif ref.startswith("insp_"):
        document = hub.inspection(ref)
    else:
        raise InvalidInputError(
            "input.unknown_id", f"{ref!r} is no id of a job, an inspection or a gate."
        )
    job = document.get("job")
    found = str(job.get("id") if isinstance(job, dict) else job or "")
    if not found:
        raise NotFoundError("job.none", f"{ref} has no job to wait for.")
    return found.rpartition("/")[2]


def _end(hub: QualityHubClient, job: Job, given: Mapping[str, Any]) -> int:
    """Show what came of a job and return the exit code."""
    color = given["output"] is None and use_color(sys.stdout)
    if job.status == "succeeded" and job.object.startswith("insp_"):
        from qualityhub.cli.inspect import exit_code
        from qualityhub.engine.reports.json import inspection_json
        from qualityhub.engine.reports.text import inspection_text

        report = hub.inspection_report(job.object)
        text = (
            inspection_json([report])
            if given["format"] == "json"
            else inspection_text(report, width=width(), color=color)
        )
        deliver(text, given["output"])
        return exit_code(report, {})
    if job.status == "succeeded" and job.object.startswith("gate_"):
        from qualityhub.cli.gate import rendered
        from qualityhub.engine.gate.decision import EXIT_CODES

        report = hub.gate_report(job.object)
        deliver(rendered(report, given["format"], color=color), given["output"])
        return EXIT_CODES.get(report["verdict"], MACHINERY)
    _deliver_job(job, given)
    return {"succeeded": OK, "failed": FAILED}.get(job.status, MACHINERY)


def _deliver_job(job: Job, given: Mapping[str, Any]) -> None:
    if given["format"] == "json":
        from qualityhub.engine.reports.json import dumps

        deliver(dumps({"schema": JOB_SCHEMA, **job_json(job)}), given["output"])
        return
    why = f": {printable(job.error.get('message', ''), 500)}" if job.error else ""
    deliver(f"{job.id} {job.status}{why}\n", given["output"])


def _deliver_push(version: Mapping[str, Any], job: Job, given: Mapping[str, Any]) -> None:
    if given["format"] == "json":
        from qualityhub.engine.reports.json import dumps

        document = {"schema": PUSH_SCHEMA, "version": dict(version), "job": job_json(job)}
        deliver(dumps(document), given["output"])
        return
    lines = [
        f"version    {version['id']}",
        f"digest     {printable(version.get('digest', ''), 100)}",
        f"job        {job.id}",
        f"inspection {job.object}" if job.object else "",
        f"wait       qualityhub wait {job.id}",
    ]
    deliver("\n".join(line for line in lines if line) + "\n", given["output"])


def job_json(job: Job) -> dict[str, Any]:
    """Return a job as data."""
    return {
        "id": job.id,
        "kind": job.kind,
        "status": job.status,
        "object": job.object or None,
        "progress": {"done": job.done, "total": job.total, "message": job.message},
        "error": dict(job.error) or None,
        "result": job.result,
    }
