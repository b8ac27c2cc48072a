"""What the client returns where a plain document would not say enough."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Job:
    """Long work at the hub.

    Attributes:
        id: Public id.
        kind: What it does.
        status: ``queued``, ``running``, ``succeeded``, ``failed``, ``errored`` or ``cancelled``.
        object: Public id of its subject, e.g. the inspection, or an empty string.
        done: Steps done.
        total: Steps known so far.
        message: What it does now.
        error: Why it failed, ``code`` and ``message``; empty otherwise.
        result: What came of it, or None.
    """

    id: str
    kind: str
    status: str
    object: str = ""
    done: int = 0
    total: int = 0
    message: str = ""
    error: Mapping[str, str] = field(default_factory=dict)
    result: Any = None

    @property
    def ended(self) -> bool:
        """Whether it will not change any more."""
        return self.status not in {"queued", "running"}


@dataclass(frozen=True, slots=True)
class Manifest:
    """What training may use.

    Attributes:
        etag: Names this state; give it back to be told that nothing changed.
        document: The manifest, or None where nothing changed.
    """

    etag: str
    document: Json | None


@dataclass(frozen=True, slots=True)
class Ingested:
    """What became of uploaded rows, all requests together.

    Attributes:
        received: Rows sent.
        inserted: Rows that are new.
        duplicates: Rows that were there already.
        conflicts: Rows that contradict stored ones and were not taken.
        examples: Some of the conflicts.
        requests: Requests sent.
    """

    received: int = 0
    inserted: int = 0
    duplicates: int = 0
    conflicts: int = 0
    examples: tuple[Mapping[str, Any], ...] = ()
    requests: int = 0


def job_from(document: Json) -> Job:
    """Return the job of an answer: the document itself, or its member ``job``."""
    inner = document.get("job")
    row: Json = inner if isinstance(inner, dict) else document
    progress = row.get("progress") or {}
    return Job(
        id=str(row["id"]),
        kind=str(row.get("kind", "")),
        status=str(row.get("status", "queued")),
        object=str(row.get("object") or ""),
        done=int(progress.get("done") or 0),
        total=int(progress.get("total") or 0),
        message=str(progress.get("message") or ""),
        error=row.get("error") or {},
        result=row.get("result"),
    )
