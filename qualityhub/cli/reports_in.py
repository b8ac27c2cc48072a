"""Reads report files that somebody hands to the command line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from qualityhub.engine.errors import InvalidInputError
from qualityhub.engine.report import SCHEMA, SCHEMA_MANY

if TYPE_CHECKING:
    from pathlib import Path

MAX_BYTES = 512 * 1024 * 1024


def read_inspections(path: Path, document: Any = None) -> list[dict[str, Any]]:
    """Return the inspections of a JSON report, one or several.

    Args:
        path: The file, also for messages.
        document: Its content, where it was parsed already.

    Raises:
        InvalidInputError: Unreadable, not JSON, or not a report of this product.
    """
    if document is None:
        document = _parsed(path)
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema == SCHEMA:
        rows = [document]
    elif schema == SCHEMA_MANY and isinstance(document.get("inspections"), list):
        rows = document["inspections"]
    else:
        raise InvalidInputError(
            "report.wrong_schema",
            f"{path} is no inspection report (schema {schema!r}).",
            f"Expected {SCHEMA} or {SCHEMA_MANY}.",
        )
    for row in rows:
        _check(path, row)
    return rows


def _parsed(path: Path) -> Any:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InvalidInputError(
                "report.too_large", f"The report {path} is larger than {MAX_BYTES >> 20} MiB."
            )
        return json.loads(path.read_bytes())
    except OSError as error:
        raise InvalidInputError(
            "report.unreadable", f"Cannot read the report {path}: {error.strerror}."
        ) from error
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(
            "report.not_json",
            f"The report {path} is not JSON: {error}.",
            "Write it with: qualityhub inspect … --format json --output report.json",
        ) from error


def known_fingerprints(
    baseline: list[dict[str, Any]], names: list[str]
) -> dict[str, frozenset[str]]:
    """Return what the baseline already found, by name of the environment inspected now.

    A fingerprint holds rule, task and ground, so two environments may share one; they are kept
    apart by name. One inspection against a baseline of one is that same environment, renamed or
    not.
    """
    by_name: dict[str, frozenset[str]] = {}
    for row in baseline:
        found = frozenset(item["fingerprint"] for item in row["findings"])
        by_name[row["environment"]["name"]] = by_name.get(row["environment"]["name"], found) | found
    if len(baseline) == 1 and len(names) == 1 and names[0] not in by_name:
        return {names[0]: next(iter(by_name.values()))}
    return {name: by_name.get(name, frozenset()) for name in names}


def _check(path: Path, row: Any) -> None:
    sound = (
        isinstance(row, dict)
        and isinstance(row.get("environment"), dict)
        and isinstance(row["environment"].get("name"), str)
        and isinstance(row.get("findings"), list)
        and all(
            isinstance(item, dict)
            and all(isinstance(item.get(key), str) for key in ("id", "code", "fingerprint"))
            for item in row["findings"]
        )
    )
    if not sound:
        raise InvalidInputError(
            "report.malformed",
            f"The report {path} has an inspection without name, findings, ids or fingerprints.",
        )
