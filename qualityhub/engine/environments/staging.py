"""Put the files a trial may see into a folder: those that its digests cover, nothing else.

Byte code, repository data, rows and documentation stay behind: none of them is in the digest of
what runs, so none of them may influence it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from qualityhub.engine.environments.files import copy_entries
from qualityhub.engine.errors import MachineryError

if TYPE_CHECKING:
    from pathlib import Path

    from qualityhub.engine.environments.model import Environment, FileEntry


def stage_shared(environment: Environment, target: Path) -> None:
    """Copy the files that all tasks share, at their relative paths; each is hashed again.

    Raises:
        UnreadablePackageError: ``package.changed``: a file is no longer what was read.
        MachineryError: The environment has no files on this host.
    """
    wanted = set(environment.shared_files)
    _copy(environment, [entry for entry in environment.files if entry.path in wanted], target)


def stage_folder(environment: Environment, folder: str, target: Path) -> None:
    """Copy one folder of the package, e.g. ``task.data["tests"]``; target becomes that folder.

    Raises:
        UnreadablePackageError: ``package.changed``: a file is no longer what was read.
        MachineryError: The environment has no files on this host.
    """
    _copy(environment, entries_below(environment, folder), target, folder)


def entries_below(environment: Environment, folder: str) -> list[FileEntry]:
    """Return the entries of a folder of the package; ``""`` and ``"."`` mean all."""
    if folder in {"", "."}:
        return list(environment.files)
    prefix = folder.rstrip("/") + "/"
    return [entry for entry in environment.files if entry.path.startswith(prefix)]


def _copy(
    environment: Environment, entries: list[FileEntry], target: Path, folder: str = ""
) -> None:
    if environment.root is None:
        raise MachineryError(
            "environment.no_files", f"{environment.name} has no files on this host to stage."
        )
    copy_entries(environment.root, entries, target, below="" if folder == "." else folder)
