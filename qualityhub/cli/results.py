"""``qualityhub results``: upload evaluation results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from qualityhub.cli.console import FAILED, OK, deliver, note
from qualityhub.cli.options import (
    INPUT_FILE,
    format_option,
    output_option,
    token_option,
    url_option,
)
from qualityhub.engine.reports.safe import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qualityhub.client import Ingested
    from qualityhub.client.rollouts import Part

UPLOAD_SCHEMA = "qualityhub.upload/1"


@click.group(short_help="Upload evaluation results.")
def results() -> None:
    """Upload evaluation results."""


@results.command("push", short_help="Upload result files into a run.")
@click.argument("run")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=INPUT_FILE)
@click.option("--checkpoint", help="Create the run named RUN for this checkpoint (id) first.")
@click.option(
    "--create-domains", is_flag=True, help="Create domains that rows name and the hub lacks."
)
@click.option("--seal", is_flag=True, help="Close the run when everything is stored.")
@format_option("text", "json")
@output_option
@url_option
@token_option
@click.pass_context
def push_results(ctx: click.Context, /, run: str, files: tuple[Path, ...], **given: Any) -> None:
    """Upload result files into the run RUN, by its id.

    FILE is a CSV or NDJSON file of rollouts, plain or gzip. Large files travel in numbered
    requests of whole rows; an upload that broke is repeated as it was, and what is stored already
    changes nothing.

    \b
    Exit codes: 0 everything is stored
                1 some rows contradict stored ones and were not taken
                2 usage, or an unusable file
                4 the hub cannot be reached
    """  # noqa: D301 - the backslash is click's mark for text it must not re-wrap.
    from qualityhub.cli.hub import connect

    with connect(given["url"], given["token"]) as hub:
        if given["checkpoint"]:
            run = str(hub.eval_run_create(given["checkpoint"], run)["id"])
            note(f"created the run {run}")
        total = hub.rollouts_push(run, files, create_domains=given["create_domains"], on_part=_show)
        sealed = bool(given["seal"]) and not total.conflicts
        if sealed:
            hub.eval_run_seal(run)
    _deliver(run, total, given, sealed=sealed)
    ctx.exit(FAILED if total.conflicts else OK)


def _show(part: Part, so_far: Ingested) -> None:
    note(f"request {part.number}: {so_far.received:,} rows sent, {so_far.inserted:,} new")


def _deliver(run: str, total: Ingested, given: Mapping[str, Any], *, sealed: bool) -> None:
    document = {
        "schema": UPLOAD_SCHEMA,
        "run": run,
        "received": total.received,
        "inserted": total.inserted,
        "duplicates": total.duplicates,
        "conflicts": [dict(item) for item in total.examples],
        "conflicts_total": total.conflicts,
        "requests": total.requests,
        "sealed": sealed,
    }
    if given["format"] == "json":
        from qualityhub.engine.reports.json import dumps

        deliver(dumps(document), given["output"])
        return
    requests = "1 request" if total.requests == 1 else f"{total.requests:,} requests"
    sums = (
        f"{run}: {total.received:,} rows sent in {requests}:"
        f" {total.inserted:,} new, {total.duplicates:,} there already,"
        f" {total.conflicts:,} contradict stored ones"
    )
    lines = [sums]
    lines += [
        f"  {printable(item.get('domain', ''), 80)} {printable(item.get('task', ''), 120)}"
        f" attempt {item.get('attempt')}: {printable(item.get('reason', ''), 80)}"
        for item in total.examples
    ]
    if given["seal"]:
        lines.append("the run is sealed" if sealed else "the run stays open: see the conflicts")
    deliver("\n".join(lines) + "\n", given["output"])
