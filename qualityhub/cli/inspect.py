"""``qualityhub inspect``: judge environments from files."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from qualityhub.cli.console import (
    FAILED,
    INTERRUPTED,
    MACHINERY,
    OK,
    PENDING,
    USAGE,
    deliver,
    error_exit,
    say,
    say_error,
    use_color,
    width,
    worst,
)
from qualityhub.cli.options import (
    CODES,
    DURATION,
    INPUT_FILE,
    format_option,
    output_option,
)
from qualityhub.cli.progress import progress_for
from qualityhub.engine.errors import MachineryError, QualityHubError, UnreadablePackageError
from qualityhub.engine.reports.reading import open_findings
from qualityhub.engine.reports.safe import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from qualityhub.engine.inspect import InspectOptions
    from qualityhub.engine.reports.sarif import Place

UNREADABLE = "FMT001"


@dataclass(slots=True)
class Outcome:
    """What came of all sources together."""

    documents: list[dict[str, Any]] = field(default_factory=list)
    sources: dict[str, str] = field(default_factory=dict)
    unchanged: list[str] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)


@click.command(short_help="Inspect environments in sandboxes and say what is wrong.")
@click.argument("sources", metavar="SOURCE...", nargs=-1, required=True)
@click.option("--domain", help="The domain it belongs to, whatever its own files say.")
@click.option("--policy", type=INPUT_FILE, help="Policy file (TOML, table [admission]).")
@click.option("--select", type=CODES, default=(), help="Only these rules: DET001,VER or so.")
@click.option("--ignore", type=CODES, default=(), help="Not these rules.")
@click.option(
    "--effort",
    type=click.Choice(["quick", "standard", "certify"]),
    help="How much is tried; without it the policy's, which is standard by default.",
)
@click.option("--adapter", help="Read the source as this format instead of detecting one.")
@format_option("text", "json", "sarif", "junit", "markdown")
@output_option
@click.option(
    "--jobs", type=click.IntRange(0, 1024), default=0, help="Sandboxes at once; 0: one a core."
)
@click.option(
    "--sandbox",
    type=click.Choice(["auto", "bwrap", "container"]),
    default="auto",
    show_default=True,
    help="What runs the environment's code.",
)
@click.option(
    "--no-cache", is_flag=True, help="Run every trial again instead of reusing stored results."
)
@click.option("--plan", is_flag=True, help="Say what the first round would run, and run nothing.")
@click.option(
    "--budget", type=DURATION, help="Stop after so long (90s, 30m, 2h) with a partial verdict."
)
@click.option(
    "--changed-since", metavar="GIT_REF", help="Only if files below the source changed since."
)
@click.option(
    "--baseline",
    type=INPUT_FILE,
    help="An earlier JSON report: what it already found is shown as known and does not fail.",
)
@click.pass_context
def inspect(ctx: click.Context, /, sources: tuple[str, ...], **given: Any) -> None:
    """Inspect environments in sandboxes and say what is wrong.

    SOURCE is a file or folder, path/to/file.py:ClassName, or one of gymnasium:ID,
    pettingzoo:MODULE, reasoning-gym:NAME, pypi:REQUIREMENT. Nothing of an environment runs
    outside a sandbox.

    \b
    Exit codes: 0 no finding of severity error
                1 at least one
                2 usage, or an unreadable source
                3 pending: behavioural rules could not run here
                4 our own machinery failed
                130 interrupted
    """  # noqa: D301 - the backslash is click's mark for text it must not re-wrap.
    from qualityhub.cli.reports_in import read_inspections

    baseline = read_inspections(given["baseline"]) if given["baseline"] else None
    kept, unchanged = _changed(sources, given["changed_since"])
    if given["plan"]:
        ctx.exit(_plan(kept, given))
    outcome = Outcome(unchanged=unchanged)
    with _graceful_stop():
        for source in kept:
            _inspect_one(source, given, outcome)
    known = None
    if baseline is not None:
        from qualityhub.cli.reports_in import known_fingerprints

        names = [document["environment"]["name"] for document in outcome.documents]
        known = known_fingerprints(baseline, names)
    if outcome.documents or outcome.unchanged:
        several = len(sources) > 1
        deliver(_rendered(outcome, given, known, several=several), given["output"])
    outcome.codes += [exit_code(document, known or {}) for document in outcome.documents]
    ctx.exit(worst(outcome.codes))


def exit_code(document: Mapping[str, Any], known: Mapping[str, frozenset[str]]) -> int:
    """Return the exit code of one report.

    Args:
        document: The report's public JSON.
        known: Fingerprints that a baseline already had, by environment name.
    """
    if unreadable(document):
        return USAGE
    if document["verdict"] == "error":
        return MACHINERY
    if open_findings(document, known.get(document["environment"]["name"], frozenset())):
        return FAILED
    return PENDING if document["verdict"] == "pending" else OK


def unreadable(document: Mapping[str, Any]) -> bool:
    """Say whether the source could not be read as an environment at all."""
    return not document["tasks"] and any(
        finding["code"] == UNREADABLE and finding["severity"] == "error"
        for finding in document["findings"]
    )


def _changed(sources: tuple[str, ...], revision: str | None) -> tuple[list[str], list[str]]:
    if not revision:
        return list(sources), []
    from qualityhub.cli.changed import changed_since, files_of

    kept, unchanged = [], []
    for source in sources:
        path = files_of(source)
        if path is None or changed_since(path, revision):
            kept.append(source)
        else:
            name, since = printable(source, 200), printable(revision, 80)
            say(f"{name}: unchanged since {since}, not inspected")
            unchanged.append(source)
    return kept, unchanged


def _inspect_one(source: str, given: Mapping[str, Any], outcome: Outcome) -> None:
    with progress_for(source) as progress:
        # Imported under the progress line: the first output is out by now.
        from qualityhub.cli.recent import remember
        from qualityhub.engine.inspect import inspect_source

        options = options_from(given)
        try:
            report = inspect_source(source, options, progress)
        except QualityHubError as error:
            say_error(error)
            outcome.codes.append(error_exit(error))
            return
        except OSError as error:
            # What an environment's files do wrong has become a report by now: this is our host.
            say_error(
                MachineryError(
                    "host.files",
                    f"This host does not let us work: {error}.",
                    f"The data folder {options.home} must be writable and have room; QH_HOME "
                    "names another one.",
                )
            )
            outcome.codes.append(MACHINERY)
            return
    document = report.as_json()
    remember(options.home, document)
    outcome.documents.append(document)
    outcome.sources[document["environment"]["name"]] = source
    if unreadable(document):
        first = next(item for item in document["findings"] if item["code"] == UNREADABLE)
        say_error(UnreadablePackageError("input.unreadable", first["message"], first["fix"]))


def options_from(given: Mapping[str, Any]) -> InspectOptions:
    """Return the engine's options from the command line's.

    Raises:
        InvalidInputError: The policy is unusable.
    """
    from qualityhub.engine.home import default_home
    from qualityhub.engine.inspect import InspectOptions
    from qualityhub.engine.policy import AdmissionPolicy, load_admission_policy

    policy = load_admission_policy(given["policy"]) if given["policy"] else AdmissionPolicy()
    if given["effort"]:
        policy = replace(policy, effort=given["effort"])
    return InspectOptions(
        policy=policy,
        home=default_home(),
        sandbox=given["sandbox"],
        jobs=given["jobs"],
        cache=not given["no_cache"],
        select=given["select"],
        ignore=given["ignore"],
        adapter=given["adapter"],
        domain=given["domain"],
        budget_s=given["budget"],
    )


def _rendered(
    outcome: Outcome,
    given: Mapping[str, Any],
    known: Mapping[str, frozenset[str]] | None,
    *,
    several: bool,
) -> str:
    match given["format"]:
        case "json":
            from qualityhub.engine.reports.json import inspection_json

            return inspection_json(
                outcome.documents, several=several, known=known, unchanged=outcome.unchanged
            )
        case "sarif":
            from qualityhub.engine.reports.sarif import inspection_sarif
            from qualityhub.engine.rules.catalogue import CATALOGUE

            places = {name: _place(source) for name, source in outcome.sources.items()}
            return inspection_sarif(
                outcome.documents, catalogue=CATALOGUE, known=known, places=places
            )
        case "junit":
            from qualityhub.engine.reports.junit import inspection_junit

            return inspection_junit(outcome.documents, known=known)
        case "markdown":
            from qualityhub.engine.reports.markdown import inspection_markdown

            return inspection_markdown(outcome.documents, known=known, unchanged=outcome.unchanged)
    from qualityhub.engine.reports.text import inspection_text

    color = given["output"] is None and use_color(sys.stdout)
    return "\n".join(
        inspection_text(
            document,
            width=width(),
            color=color,
            known=(known or {}).get(document["environment"]["name"], frozenset()),
        )
        for document in outcome.documents
    )


def _place(source: str) -> Place:
    """Return where a source lies relative to the current folder, as far as it does."""
    from qualityhub.cli.changed import files_of
    from qualityhub.engine.reports.sarif import Place

    path = files_of(source)
    if path is None:
        return Place()
    folder = (path if path.is_dir() else path.parent).resolve()
    here = Path.cwd().resolve()
    if not folder.is_relative_to(here):
        return Place()
    file = path if path.is_file() else Path(source.rpartition(":")[0])
    entry = file.name if file.is_file() else ""
    return Place(folder.relative_to(here).as_posix(), entry)


def _plan(sources: list[str], given: Mapping[str, Any]) -> int:
    from qualityhub.cli.plan import plan_documents, plan_text
    from qualityhub.engine.reports.json import dumps

    if given["format"] not in {"text", "json"}:
        raise click.UsageError("--plan is written as text or json.")
    plans = plan_documents(sources, options_from(given))
    if given["format"] == "json":
        deliver(dumps(plans), given["output"])
    else:
        deliver(plan_text(plans), given["output"])
    return OK


@contextmanager
def _graceful_stop() -> Iterator[None]:
    """Let a polite kill end the work as Ctrl-C does: sandboxes are ended, the code is 130.

    Who asks a second time does not wait for that: the sandboxes see us go, and what was staged is
    removed by the next pruning of the store.
    """
    asked = False

    def stop(signum: int, frame: object) -> None:
        del signum, frame
        nonlocal asked
        if asked:
            os._exit(INTERRUPTED)
        asked = True
        raise KeyboardInterrupt

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
