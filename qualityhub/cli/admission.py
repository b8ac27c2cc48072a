"""``qualityhub admission``: what training may use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from qualityhub.cli.console import FAILED, OK, deliver, say
from qualityhub.cli.options import (
    format_option,
    output_option,
    token_option,
    url_option,
)
from qualityhub.engine.errors import InvalidInputError
from qualityhub.engine.reports.safe import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

CHECK_SCHEMA = "qualityhub.admission-check/1"
MAX_DIGESTS = 1_000_000


@click.group(short_help="Ask what training may use.", invoke_without_command=True)
@click.option("--manifest", is_flag=True, help="Print the manifest; as the subcommand does.")
@click.option("--domain", default="", help="Only this domain, by slug or id.")
@output_option
@url_option
@token_option
@click.pass_context
def admission(ctx: click.Context, /, manifest: bool, **given: Any) -> None:
    """Ask what training may use: the whole manifest, or whether digests are admitted."""
    ctx.obj = given
    if ctx.invoked_subcommand is None:
        if not manifest:
            raise click.UsageError("Say 'admission manifest' or 'admission check DIGEST...'.")
        _manifest(given, etag="")


@admission.command("manifest", short_help="Print everything that is admitted, as JSON.")
@click.option(
    "--etag", default="", help="State of an earlier manifest: prints nothing if it still holds."
)
@click.pass_obj
def manifest_command(given: dict[str, Any], etag: str) -> None:
    """Print everything that is admitted, as JSON.

    With --etag nothing is printed and nothing written where the manifest has not changed. The
    state's name goes to standard error.
    """
    _manifest(given, etag=etag)


@admission.command("check", short_help="Say of each digest whether training may use it.")
@click.argument("digests", metavar="DIGEST...", nargs=-1)
@click.option(
    "--file", type=click.File("r"), help="Read digests from a file, one a line; - is stdin."
)
@format_option("text", "json")
@click.pass_context
def check(ctx: click.Context, /, digests: tuple[str, ...], **options: Any) -> None:
    """Say of each digest whether training may use it.

    \b
    Exit codes: 0 all are admitted
                1 at least one is not
                2 usage
                4 the hub cannot be reached
    """  # noqa: D301 - the backslash is click's mark for text it must not re-wrap.
    from qualityhub.cli.hub import connect
    from qualityhub.engine.reports.json import dumps

    given = ctx.obj
    wanted = _digests(digests, options["file"])
    with connect(given["url"], given["token"]) as hub:
        answers = hub.admission_check(wanted)
    rows = [{"digest": digest, **answers.get(digest, {"admitted": False})} for digest in wanted]
    if options["format"] == "json":
        deliver(dumps({"schema": CHECK_SCHEMA, "results": rows}), given["output"])
    else:
        deliver("".join(_line(row) for row in rows), given["output"])
    ctx.exit(OK if all(row["admitted"] is True for row in rows) else FAILED)


def _manifest(given: Mapping[str, Any], *, etag: str) -> None:
    from qualityhub.cli.hub import connect
    from qualityhub.engine.reports.json import dumps

    with connect(given["url"], given["token"]) as hub:
        found = hub.admission_manifest(domain=given["domain"], etag=etag)
    if found.document is None:
        say("not changed")
        return
    if found.etag:
        say(f"etag {printable(found.etag, 200)}")
    deliver(dumps(found.document), given["output"])


def _digests(named: tuple[str, ...], file: Any) -> list[str]:
    wanted = dict.fromkeys(named)
    if file is not None:
        for line in file:
            if line.strip():
                wanted[line.strip()] = None
            if len(wanted) > MAX_DIGESTS:
                raise InvalidInputError(
                    "input.too_many", f"More than {MAX_DIGESTS:,} digests at once."
                )
    if not wanted:
        raise click.UsageError("Name at least one digest, or --file.")
    return list(wanted)


def _line(row: Mapping[str, Any]) -> str:
    word = "admitted" if row["admitted"] is True else "refused"
    reason = printable(row.get("reason") or row.get("status") or "", 200)
    return f"{word:<9} {printable(row['digest'], 120)}  {reason}".rstrip() + "\n"
