"""The last report of every source inspected on this machine, so that ``reproduce ID`` finds it.

Reports may hold answer keys: the folder is for its owner alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qualityhub.cli.changed import files_of
from qualityhub.engine.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDER = "reports"
KEPT = 200


def remember(home: Path, document: Mapping[str, Any]) -> None:
    """Keep a report; failing to is no reason to fail the inspection."""
    source = str(document["environment"].get("source", ""))
    here = str(Path.cwd())
    name = hashlib.sha256(f"{here}\0{source}".encode(errors="surrogateescape")).hexdigest()[:32]
    folder = home / FOLDER
    part = folder / f".{name}.{os.getpid()}.part"
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump({"folder": here, "report": document}, file, default=dict)
        part.replace(folder / f"{name}.json")
        for old in _newest_first(folder)[KEPT:]:
            old.unlink(missing_ok=True)


def recall(home: Path, name: str) -> dict[str, Any] | None:
    """Return the newest kept report with a finding of this id or fingerprint, or None.

    Its source is made absolute where it was given relative to another folder.
    """
    from qualityhub.cli.reports_in import read_inspections

    for path in _newest_first(home / FOLDER):
        try:
            kept = json.loads(path.read_bytes())
            (document,) = read_inspections(path, kept["report"])
            folder = Path(kept["folder"])
        except (OSError, ValueError, KeyError, TypeError, InvalidInputError):
            continue
        if any(name in {item["id"], item["fingerprint"]} for item in document["findings"]):
            source = str(document["environment"].get("source", ""))
            moved = str(folder / source)
            if source and files_of(moved) is not None:
                document["environment"]["source"] = moved
            return document
    return None


def _newest_first(folder: Path) -> list[Path]:
    with contextlib.suppress(OSError):
        paths = [path for path in folder.iterdir() if path.suffix == ".json"]
        return sorted(paths, key=lambda path: path.stat().st_mtime_ns, reverse=True)
    return []
