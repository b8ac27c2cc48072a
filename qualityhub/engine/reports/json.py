"""The machine's report: one JSON document and nothing else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from qualityhub.engine.report import SCHEMA_MANY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from qualityhub.engine.reports.reading import Document


def inspection_json(
    documents: Sequence[Document],
    *,
    several: bool = False,
    known: Mapping[str, frozenset[str]] | None = None,
    unchanged: Sequence[str] = (),
) -> str:
    """Return one inspection as it is, several as ``qualityhub.inspections/1``.

    Args:
        documents: Reports in the order of their sources.
        several: Use the plural document even for one report (several sources were asked for).
        known: Fingerprints that a baseline already had, by environment name; named beside the
            findings as ``known``.
        unchanged: Sources that were not inspected because nothing changed.
    """
    shown = [_with_known(document, known) for document in documents]
    if len(shown) == 1 and not several and not unchanged:
        return dumps(shown[0])
    whole: dict[str, Any] = {"schema": SCHEMA_MANY, "inspections": shown}
    if unchanged:
        whole["unchanged"] = list(unchanged)
    return dumps(whole)


def dumps(value: object) -> str:
    """Return indented ASCII JSON with a line end.

    ASCII alone, so that what an environment wrote cannot steer the terminal it is printed on.
    """
    return json.dumps(value, indent=2, ensure_ascii=True, allow_nan=False, default=_plain) + "\n"


def _with_known(document: Document, known: Mapping[str, frozenset[str]] | None) -> dict[str, Any]:
    if known is None:
        return dict(document)
    mine = known.get(document["environment"]["name"], frozenset())
    seen = sorted({finding["fingerprint"] for finding in document["findings"]} & mine)
    return {**document, "known": seen}


def _plain(value: object) -> object:
    if hasattr(value, "items"):
        return dict(value.items())
    if isinstance(value, (set, frozenset, tuple)):
        return list(value)
    raise TypeError(f"{type(value).__name__} has no place in a report")
