"""SARIF 2.1.0 for code scanning. Leaves the hub, so it carries no answer keys."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from qualityhub import __version__
from qualityhub.engine.reports.json import dumps
from qualityhub.engine.reports.reading import summary
from qualityhub.engine.reports.safe import printable, public_evidence
from qualityhub.engine.rules.pages import rule_page

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from qualityhub.engine.reports.reading import Document
    from qualityhub.engine.rules.model import Rule

SCHEMA_URI = "https://json.schemastore.org/sarif-2.1.0.json"
FINGERPRINT = "qualityhub/v1"
ROOT = "SRCROOT"
_LEVELS = {"error": "error", "warning": "warning", "info": "note"}


@dataclass(frozen=True, slots=True)
class Place:
    """Where an environment lies in the repository.

    Attributes:
        folder: Relative to the repository's root; empty for the root itself.
        entry: File within the folder that stands for the environment in findings that name no
            file; empty where the folder itself is the environment.
    """

    folder: str = ""
    entry: str = ""


def inspection_sarif(
    documents: Sequence[Document],
    *,
    catalogue: Mapping[str, Rule],
    known: Mapping[str, frozenset[str]] | None = None,
    places: Mapping[str, Place] | None = None,
) -> str:
    """Render reports as one SARIF log with a run per environment.

    Args:
        documents: Reports in the order of their sources.
        catalogue: Rules by code: their pages become the help texts.
        known: Fingerprints that a baseline already had, by environment name: ``unchanged``.
        places: Where each environment lies in the repository, by environment name.
    """
    return dumps(
        {
            "$schema": SCHEMA_URI,
            "version": "2.1.0",
            "runs": [
                _run(
                    document,
                    catalogue,
                    None
                    if known is None
                    else known.get(document["environment"]["name"], frozenset()),
                    (places or {}).get(document["environment"]["name"], Place()),
                )
                for document in documents
            ],
        }
    )


def _run(
    document: Document, catalogue: Mapping[str, Rule], known: frozenset[str] | None, place: Place
) -> dict[str, Any]:
    codes = list(
        dict.fromkeys(
            [rule["code"] for rule in document["rules"]]
            + [finding["code"] for finding in document["findings"]]
        )
    )
    name = printable(document["environment"]["name"], 200)
    return {
        "tool": {
            "driver": {
                "name": "QualityHub",
                "version": __version__,
                "semanticVersion": __version__,
                "rules": [_rule(code, catalogue, document) for code in codes],
            }
        },
        "automationDetails": {"id": f"qualityhub/{quote(name, safe='')}/"},
        "columnKind": "utf16CodeUnits",
        "originalUriBaseIds": {ROOT: {"description": {"text": "The repository's root."}}},
        "invocations": [_invocation(document)],
        "results": [
            _result(finding, codes.index(finding["code"]), known, place)
            for finding in document["findings"]
        ],
        "properties": {
            "verdict": document["verdict"],
            "environment": f"{name} ({printable(summary(document), 200)})",
            "digest": document["environment"].get("digest", ""),
            "provisional": bool(document["environment"].get("provisional")),
            "trials": dict(document["trials"]),
        },
    }


def _rule(code: str, catalogue: Mapping[str, Rule], document: Document) -> dict[str, Any]:
    rule = catalogue.get(code)
    if rule is None:
        # A report from a newer catalogue, or one with third-party rules.
        title = next(
            (item.get("title") for item in document["rules"] if item["code"] == code), None
        )
        return {"id": code, "shortDescription": {"text": printable(title or code, 200)}}
    page = rule_page(rule)
    return {
        "id": code,
        "name": "".join(word.capitalize() for word in rule.title.split() if word.isalnum()) or code,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.page.what.strip()},
        "help": {"text": page, "markdown": page},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
        "properties": {"tags": [code[:3].lower(), rule.cost], "precision": "high"},
    }


def _invocation(document: Document) -> dict[str, Any]:
    notes = [
        {
            "level": "note",
            "descriptor": {"id": item["code"]},
            "message": {
                "text": printable(
                    f"{item['code']} not measured for {item['tasks']} tasks: {item['reason']}", 1000
                )
            },
        }
        for item in document["not_measured"]
    ]
    broken = [
        {
            "level": "error",
            "descriptor": {"id": rule["code"]},
            "message": {"text": printable(f"{rule['code']} failed: {rule['reason']}", 1000)},
        }
        for rule in document["rules"]
        if rule["status"] == "error"
    ]
    return {
        "executionSuccessful": document["verdict"] != "error" and not broken,
        "toolExecutionNotifications": notes + broken,
    }


def _result(
    finding: Mapping[str, Any], index: int, known: frozenset[str] | None, place: Place
) -> dict[str, Any]:
    task = finding["task"]
    where = "" if task is None else f" (task {printable(task, 120)})"
    result: dict[str, Any] = {
        "ruleId": finding["code"],
        "ruleIndex": index,
        # A lead is no failure: it never exceeds a note.
        "level": "note" if finding["kind"] == "lead" else _LEVELS[finding["severity"]],
        "message": {"text": printable(finding["message"], 2000) + where},
        "locations": [_location(finding, place)],
        "partialFingerprints": {FINGERPRINT: finding["fingerprint"]},
        "properties": {
            "id": finding["id"],
            "kind": finding["kind"],
            "evidence": public_evidence(finding["evidence"]),
            "reproduce": printable(finding["reproduce"]),
        },
    }
    if known is not None:
        result["baselineState"] = "unchanged" if finding["fingerprint"] in known else "new"
    if finding["waived"]:
        result["suppressions"] = [{"kind": "external", "justification": "Waived by its owner."}]
    return result


def _location(finding: Mapping[str, Any], place: Place) -> dict[str, Any]:
    path, line = split_location(finding["location"])
    uri = quote(str(PurePosixPath(place.folder or ".") / (path or place.entry or "")))
    physical: dict[str, Any] = {"artifactLocation": {"uri": uri, "uriBaseId": ROOT}}
    if line:
        physical["region"] = {"startLine": line}
    location: dict[str, Any] = {"physicalLocation": physical}
    if finding["task"] is not None:
        location["logicalLocations"] = [
            {"fullyQualifiedName": printable(finding["task"], 500), "kind": "member"}
        ]
    return location


def split_location(location: str) -> tuple[str, int]:
    """Return path and line of ``path:line``; empty and 0 where there is none.

    A path that is absolute or climbs out of the package is dropped: reports name package files.
    """
    path, _, tail = location.rpartition(":")
    line = int(tail) if path and tail.isascii() and tail.isdigit() else 0
    if not line:
        path = location
    pure = PurePosixPath(path.replace("\\", "/"))
    if pure.is_absolute() or ".." in pure.parts or not path:
        return "", 0
    return str(pure), line
