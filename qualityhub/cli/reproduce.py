"""``qualityhub reproduce``: run again just what produced a finding."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from qualityhub.cli.console import FAILED, OK, deliver, note, use_color, width
from qualityhub.cli.options import (
    INPUT_FILE,
    format_option,
    output_option,
    token_option,
    url_option,
)
from qualityhub.engine.errors import InvalidInputError, MachineryError, NotFoundError
from qualityhub.engine.reports.reading import evidence_lines, shown, trials_of
from qualityhub.engine.reports.safe import printable, printable_lines

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from qualityhub.client import QualityHubClient
    from qualityhub.engine.inspect import InspectOptions
    from qualityhub.engine.trials.model import Ask, Observation

REPRODUCTION_SCHEMA = "qualityhub.reproduction/1"
MAX_ASKS = 1000
MAX_ROUNDS = 10
SHOWN_OBSERVATIONS = 20


@dataclass(frozen=True, slots=True)
class Wanted:
    """A finding and the inspection it comes from."""

    finding: Mapping[str, Any]
    environment: Mapping[str, Any]
    policy: Mapping[str, Any]


@click.command(short_help="Run again just what produced a finding.")
@click.argument("finding")
@click.option(
    "--report",
    type=INPUT_FILE,
    help="JSON report that holds it; without one, what was inspected here lately, or the hub.",
)
@click.option("--inspection", help="At the hub: the inspection that found it.")
@click.option("--source", help="Where the environment lies now, if not where the report says.")
@click.option("--adapter", help="Read the source as this format instead of detecting one.")
@click.option(
    "--sandbox",
    type=click.Choice(["auto", "bwrap", "container"]),
    default="auto",
    show_default=True,
    help="What runs the environment's code.",
)
@format_option("text", "json")
@output_option
@url_option
@token_option
@click.pass_context
def reproduce(ctx: click.Context, /, finding: str, **given: Any) -> None:
    """Run again just what produced FINDING, an id or a fingerprint, and compare.

    \b
    Exit codes: 1 the finding shows itself again
                0 it does not
                2 usage, unknown finding, unreadable source
                4 our own machinery failed
                130 interrupted
    """  # noqa: D301 - the backslash is click's mark for text it must not re-wrap.
    with ExitStack() as stack:
        wanted = _wanted(finding, given, stack)
        source = given["source"] or _source(wanted)
        asks = asks_from(wanted.finding["evidence"].get("asks"))
        if asks:
            document = _run_again(source, asks, wanted, given)
        else:
            document = _read_again(source, wanted, given)
    form, output = given["format"], given["output"]
    if form == "json":
        from qualityhub.engine.reports.json import dumps

        deliver(dumps(document), output)
    else:
        deliver(_text(document, color=output is None and use_color(sys.stdout)), output)
    ctx.exit(FAILED if document["reproduced"] else OK)


def asks_from(rows: Any) -> list[Ask]:
    """Return the asks that a finding's evidence names.

    Raises:
        InvalidInputError: The evidence is not in the form that this version writes.
    """
    from qualityhub.engine.trials.codec import ask_from_evidence
    from qualityhub.engine.trials.variations import check_variation

    if not rows:
        return []
    if not isinstance(rows, list) or len(rows) > MAX_ASKS:
        raise InvalidInputError("report.malformed", "The finding's list of trials is malformed.")
    asks = []
    for row in rows:
        try:
            ask = ask_from_evidence({"repeat": 0, **row})
            check_variation(ask.variation)
        except (KeyError, TypeError, ValueError, InvalidInputError) as error:
            raise InvalidInputError(
                "report.malformed", "The finding's list of trials is malformed.", repr(row)[:200]
            ) from error
        asks.append(ask)
    return asks


def find_in(documents: Sequence[Mapping[str, Any]], name: str) -> Wanted:
    """Return the one finding with this id or fingerprint.

    Raises:
        NotFoundError: None has it.
        InvalidInputError: Several do, in different environments.
    """
    found = [
        Wanted(item, document["environment"], document.get("policy") or {})
        for document in documents
        for item in document["findings"]
        if name in {item["id"], item["fingerprint"]}
    ]
    if not found:
        ids = [str(item["id"]) for document in documents for item in document["findings"]]
        listed = ", ".join(ids[:5]) + (f" and {len(ids) - 5} more" if len(ids) > 5 else "")
        raise NotFoundError(
            "report.no_such_finding",
            f"The report has no finding {name!r}.",
            f"It has: {listed}" if ids else "It has no findings at all.",
        )
    if len({str(wanted.environment.get("source")) for wanted in found}) > 1:
        raise InvalidInputError(
            "report.ambiguous_finding",
            f"{len(found)} environments of the report have the finding {name!r}.",
            "Write a report of one source and name that.",
        )
    return found[0]


def _wanted(name: str, given: Mapping[str, Any], stack: ExitStack) -> Wanted:
    """Look in the named report, else in what was inspected here lately, else at the hub."""
    if given["report"]:
        return _from_report(name, given["report"])
    if not given["url"] and not given["inspection"]:
        from qualityhub.cli.recent import recall
        from qualityhub.engine.home import default_home

        document = recall(default_home(), name)
        if document is not None:
            return find_in([document], name)
    try:
        return _from_hub(name, given, stack)
    except InvalidInputError as error:
        if error.code != "login.no_hub":
            raise
        raise NotFoundError(
            "report.no_such_finding",
            f"Nothing inspected here lately has the finding {name!r}, and no hub is named.",
            "Name the report (--report FILE) or the hub (QH_URL).",
        ) from error


def _from_report(name: str, path: Path) -> Wanted:
    from qualityhub.cli.reports_in import read_inspections

    wanted = find_in(read_inspections(path), name)
    if not isinstance(wanted.finding.get("evidence"), dict):
        raise InvalidInputError("report.malformed", f"The finding {name!r} has no evidence.")
    return wanted


def _from_hub(name: str, given: Mapping[str, Any], stack: ExitStack) -> Wanted:
    """Ask the hub for the finding, and for the files it was found in unless they are named."""
    from qualityhub.cli.hub import connect

    with connect(given["url"], given["token"]) as hub:
        inspection = given["inspection"] or _inspection_of(hub, name)
        wanted = find_in([hub.inspection_report(inspection)], name)
        if given["source"]:
            return wanted
        version = hub.version(hub.inspection(inspection)["version"])
        source = version["source"]
        if version.get("archive"):
            source = str(_unpacked(hub, version["id"], stack))
    return replace(wanted, environment={**wanted.environment, "source": source})


def _inspection_of(hub: QualityHubClient, name: str) -> str:
    found = {
        str(item["environment"]): str(item["inspection"])
        for item in hub.findings()
        if name in {item["id"], item["fingerprint"]}
    }
    if not found:
        raise NotFoundError(
            "report.no_such_finding",
            f"The hub's newest inspections have no finding {name!r}.",
            "Name an older one: --inspection ID",
        )
    if len(found) > 1:
        raise InvalidInputError(
            "report.ambiguous_finding",
            f"{len(found)} environments of the hub have the finding {name!r}.",
            f"Name the inspection: --inspection {' or '.join(sorted(found.values()))}",
        )
    return next(iter(found.values()))


def _unpacked(hub: QualityHubClient, version: str, stack: ExitStack) -> Path:
    from tempfile import TemporaryDirectory, TemporaryFile

    from qualityhub.engine.environments.archives import extract_archive

    folder = Path(stack.enter_context(TemporaryDirectory(prefix="qualityhub-"))) / "files"
    with TemporaryFile() as archive:
        hub.version_archive(version, archive)
        archive.seek(0)
        extract_archive(archive, folder)
    return folder


def _source(wanted: Wanted) -> str:
    source = wanted.environment.get("source")
    if not isinstance(source, str) or not source:
        raise InvalidInputError(
            "reproduce.no_source",
            "The report does not say where the environment lies.",
            "Name it: --source PATH",
        )
    return source


def _run_again(
    source: str, asks: Sequence[Ask], wanted: Wanted, given: Mapping[str, Any]
) -> dict[str, Any]:
    """Run the finding's trials, and whatever else its rule then wants to see of that task."""
    from qualityhub.engine.environments.reader import read_environment
    from qualityhub.engine.inspect import reproduce as run_asks
    from qualityhub.engine.rules.catalogue import find_rule
    from qualityhub.engine.rules.model import Context, Found
    from qualityhub.engine.rules.verdict import fingerprint
    from qualityhub.engine.trials.model import World

    environment = read_environment(source, adapter=given["adapter"])
    task = next((task for task in environment.tasks if task.id == asks[0].task), None)
    if task is None:
        raise NotFoundError(
            "reproduce.task_gone", f"{source} no longer has the task {asks[0].task!r}."
        )
    rule, options = find_rule(wanted.finding["code"]), _options(wanted, given)
    seen: dict[Ask, Observation] = {}
    context = Context(environment, {"": World("ready")}, options.policy, seen.get)
    pending = list(dict.fromkeys(asks))
    for _ in range(MAX_ROUNDS):
        note(f"running {len(pending)} trials again in the sandbox")
        seen.update(run_asks(source, pending, options))
        pending = [ask for ask in dict.fromkeys(rule.asks(context, task)) if ask not in seen]
        if not pending:
            break
    for observation in seen.values():
        if observation.outcome == "machinery":
            raise MachineryError("reproduce.machinery", observation.detail or "A trial failed.")
    found = [
        item
        for item in rule.check_task(context, task)
        if isinstance(item, Found)
        and fingerprint(rule.code, item.task, item.ground) == wanted.finding["fingerprint"]
    ]
    now = evidence_lines(found[0].evidence) if found else []
    return _document(source, wanted, reproduced=bool(found), now=now, seen=seen)


def _read_again(source: str, wanted: Wanted, given: Mapping[str, Any]) -> dict[str, Any]:
    """Judge a finding that no trial made: inspect again with that one rule."""
    from qualityhub.engine.inspect import inspect_source

    options = replace(_options(wanted, given), select=(wanted.finding["code"],), cache=False)
    report = inspect_source(source, options)
    found = [item for item in report.findings if item.fingerprint == wanted.finding["fingerprint"]]
    now = evidence_lines(found[0].evidence) if found else []
    return _document(source, wanted, reproduced=bool(found), now=now, seen={})


def _options(wanted: Wanted, given: Mapping[str, Any]) -> InspectOptions:
    """Return options under the policy of the report: it decides how often a rule repeats."""
    from qualityhub.engine.home import default_home
    from qualityhub.engine.inspect import InspectOptions
    from qualityhub.engine.policy import admission_policy_from

    stated = {key: value for key, value in wanted.policy.items() if key != "version"}
    return InspectOptions(
        policy=admission_policy_from(stated),
        home=default_home(),
        sandbox=given["sandbox"],
        adapter=given["adapter"],
    )


def _document(
    source: str,
    wanted: Wanted,
    *,
    reproduced: bool,
    now: Sequence[tuple[str, str]],
    seen: Mapping[Ask, Observation],
) -> dict[str, Any]:
    from qualityhub.engine.trials.variations import names_of

    finding = wanted.finding
    family: Any = wanted.environment.get("family")
    return {
        "schema": REPRODUCTION_SCHEMA,
        "finding": {key: finding.get(key) for key in ("id", "code", "task", "message")},
        "fingerprint": finding["fingerprint"],
        "source": source,
        "reproduced": reproduced,
        "then": [
            {"name": name, "text": text} for name, text in evidence_lines(finding["evidence"])
        ],
        "now": [{"name": name, "text": text} for name, text in now],
        "trials": trials_of(finding["evidence"]),
        "observations": [
            {
                "task": ask.task,
                "probe": ask.probe,
                "hash_seed": ask.variation.hash_seed,
                "seed": ask.variation.seed,
                **ask.variation.changes(),
                "repeat": ask.repeat,
                "changed": names_of(ask.variation, family) if ask.variation.changes() else "",
                "not_applied": dict(observation.facts.get("not_applied", {})),
                "outcome": observation.outcome,
                "reward": observation.reward,
                "detail": observation.detail,
            }
            for ask, observation in list(seen.items())[:SHOWN_OBSERVATIONS]
        ],
    }


def _text(document: Mapping[str, Any], *, color: bool) -> str:
    finding = document["finding"]
    words = "REPRODUCED" if document["reproduced"] else "NOT REPRODUCED"
    style = "red" if document["reproduced"] else "green"
    head = click.style(words, fg=style, bold=True) if color else words
    lines = [
        f"{head}  {printable(finding['code'])} {printable(finding['task'] or '')}".rstrip(),
        f"  {printable(finding['message'], 600)}",
    ]
    for when in ("then", "now"):
        rows = [
            f"  {when:<4}  {row['name']:<9} {printable(row['text'], 300)}" for row in document[when]
        ]
        lines += rows
    lines += [f"  then  output    qualityhub trial {key}" for key in document["trials"][:1]]
    for row in document["observations"]:
        changed = [row["changed"]] if row["changed"] else []
        changed += [f"repeat {row['repeat']}"] if row["repeat"] else []
        how = f"{row['probe']}{' (' + ', '.join(changed) + ')' if changed else ''}"
        lines.append(f"  ran   {printable(how, 300)}: {printable(shown(row), 200)}")
        lines += [
            f"        not applied: {printable(name)}: {printable(why, 200)}"
            for name, why in row["not_applied"].items()
        ]
        lines += [f"        │ {text}" for text in printable_lines(row["detail"], 4, width() - 12)]
    return "\n".join(lines) + "\n"
