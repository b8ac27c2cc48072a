"""``qualityhub gate``: compare checkpoints from result files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from qualityhub.cli.console import deliver, say, use_color, width
from qualityhub.cli.options import INPUT_FILE, format_option, output_option

if TYPE_CHECKING:
    from collections.abc import Mapping


@click.command(short_help="Compare a checkpoint with its baseline, per domain.")
@click.argument("candidates", metavar="CANDIDATE...", nargs=-1, required=True, type=INPUT_FILE)
@click.option(
    "--baseline",
    type=INPUT_FILE,
    multiple=True,
    required=True,
    help="Result file of the baseline; repeat it for several.",
)
@click.option("--policy", type=INPUT_FILE, help="Policy file (TOML, table [gate]).")
@format_option("text", "json", "markdown", "junit", "html")
@output_option
@click.pass_context
def gate(ctx: click.Context, /, candidates: tuple[Path, ...], **given: Any) -> None:
    """Compare a checkpoint with its baseline, domain by domain, from result files.

    CANDIDATE is a CSV or NDJSON file of rollouts, plain or gzip.

    \b
    Exit codes: 0 promote
                1 block
                2 usage, or unreadable input
                3 inconclusive: the report says what would settle it
                4 incomparable, or our own machinery failed
                130 interrupted
    """  # noqa: D301 - the backslash is click's mark for text it must not re-wrap.
    if sys.stderr.isatty():
        say("reading results")
    from qualityhub.engine.gate.compare import compare_files
    from qualityhub.engine.gate.policy import GatePolicy, load_gate_policy

    policy = load_gate_policy(given["policy"]) if given["policy"] else GatePolicy()
    decision = compare_files(list(candidates), list(given["baseline"]), policy)
    color = given["output"] is None and use_color(sys.stdout)
    deliver(rendered(decision.as_json(), given["format"], color=color), given["output"])
    ctx.exit(decision.exit_code)


def rendered(document: Mapping[str, Any], form: str, *, color: bool) -> str:
    """Return a gate document in one of the formats.

    Args:
        document: The public JSON (``qualityhub.gate/1``).
        form: ``text``, ``json``, ``markdown``, ``junit`` or ``html``.
        color: Whether text may be coloured.
    """
    match form:
        case "json":
            from qualityhub.engine.reports.json import dumps

            return dumps(document)
        case "markdown":
            from qualityhub.engine.reports.gate_comment import gate_comment

            return gate_comment(document)
        case "junit":
            from qualityhub.engine.reports.gate_cases import gate_cases

            return gate_cases(document)
        case "html":
            from qualityhub.engine.reports.gate_page import gate_page

            return gate_page(document)
    from qualityhub.engine.reports.gate_text import gate_text

    text = gate_text(document, width=width(), color=color)
    return text if text.endswith("\n") else f"{text}\n"
