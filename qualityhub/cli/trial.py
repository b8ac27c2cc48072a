"""``qualityhub trial``: show what a trial wrote and how it ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from qualityhub.cli.console import deliver
from qualityhub.cli.options import format_option, output_option, token_option, url_option
from qualityhub.engine.errors import InvalidInputError, NotFoundError

if TYPE_CHECKING:
    from pathlib import Path

PREFIX = "qh1:"
SHORTEST = 8
"""Characters of a key that are enough on this machine, if only one trial begins so."""


@click.command(short_help="Show what a trial wrote, and how it ended.")
@click.argument("key")
@click.option(
    "--home",
    type=click.Path(file_okay=False, path_type=str),
    help="Data folder to look in; without it the one of 'inspect' (QH_HOME).",
)
@format_option("text", "json")
@output_option
@url_option
@token_option
def trial(key: str, **given: Any) -> None:
    """Show what the trial KEY wrote, how it ended and what it used.

    Findings name the keys of their trials. Looks in what was inspected on this machine, or with
    --url at that hub. The outputs may quote hidden tests and answers: they are for the team alone.
    """
    documents = None
    if given["home"] or not given["url"]:
        documents = _here(key, given["home"])
    if documents is None and not given["home"]:
        documents = _at_hub(key, given)
    if documents is None:
        raise _not_found(key)
    found, evidence = documents
    if given["format"] == "json":
        from qualityhub.engine.reports.json import dumps

        deliver(dumps({**found, "evidence": evidence}), given["output"])
        return
    from qualityhub.engine.reports.trial import trial_text

    deliver(trial_text(found, evidence), given["output"])


def _here(key: str, home: str | None) -> tuple[dict[str, Any], dict[str, Any]] | None:
    from qualityhub.engine.trials.evidence import evidence_document, trial_document
    from qualityhub.engine.trials.store import directory_store

    store = directory_store(_home(home))
    name = key.removeprefix(PREFIX)
    if len(name) < SHORTEST:
        raise InvalidInputError(
            "trial.key_too_short", f"A key has {SHORTEST} characters or more beside 'qh1:'."
        )
    found = store.find(name)
    if len(found) > 1:
        raise InvalidInputError(
            "trial.key_ambiguous", f"{len(found)} trials begin so.", f"One is {found[0]}."
        )
    result = store.get(found[0]) if found else None
    if result is None:
        return None
    return trial_document(result), evidence_document(result, store.evidence(result))


def _home(home: str | None) -> Path:
    from pathlib import Path

    from qualityhub.engine.home import default_home

    return Path(home) if home else default_home()


def _at_hub(key: str, given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]] | None:
    from qualityhub.cli.hub import connect

    try:
        hub = connect(given["url"], given["token"])
    except InvalidInputError as error:
        if error.code != "login.no_hub":
            raise
        return None
    with hub:
        key = key if key.startswith(PREFIX) else PREFIX + key
        return hub.trial(key), hub.trial_evidence(key)


def _not_found(key: str) -> NotFoundError:
    return NotFoundError(
        "trial.not_found",
        f"No trial {key!r} is stored here.",
        "Name the data folder (--home) or the hub (--url); an inspection with --no-cache stores "
        "none.",
    )
