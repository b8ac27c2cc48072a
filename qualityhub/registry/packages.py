"""Packages on disk: unpacking what was uploaded, and finding it again.

``QH_HOME/trees/<sha256 of the archive>`` is a cache of unpacked archives: complete or absent,
never changed, made again from the archive where it is missing. The file of the same name that ends
with ``.json`` tells the store how large it is and, by its time of change, when it was last used.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, BinaryIO

from django.conf import settings

from qualityhub.engine.environments.archives import extract_archive
from qualityhub.engine.environments.codec import environment_from_json, environment_to_json
from qualityhub.engine.environments.reader import read_environment
from qualityhub.engine.errors import InvalidInputError, MachineryError
from qualityhub.engine.sandbox import store
from qualityhub.engine.sandbox.owners import label
from qualityhub.engine.sandbox.trees import size_of
from qualityhub.platform.blobs import blob_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from qualityhub.engine.environments.model import Environment
    from qualityhub.registry.models import EnvironmentVersion

PARSED_MAX_BYTES = 2**30
REFERENCE = re.compile(r"(gymnasium|reasoning-gym|pettingzoo|pypi):[^\s\0]{1,450}")


@dataclass(frozen=True, slots=True)
class Unpacked:
    """An archive in a folder of its own, not yet kept.

    Attributes:
        folder: Where it is; goes away at the end of the block unless it was kept.
        environment: What the reader made of it.
        root_path: The environment's folder, relative to ``folder``; empty for the folder itself.
    """

    folder: Path
    environment: Environment
    root_path: str


@contextmanager
def unpacked(
    archive: BinaryIO, *, name: str, adapter: str | None, entry: str, domain: str
) -> Iterator[Unpacked]:
    """Unpack an archive and read it; nothing is left where that fails.

    Raises:
        UnreadablePackageError: No archive, an unsafe one, or no environment in it.
        InvalidInputError: The entry or the adapter is none that there is.
    """
    with _new_folder() as folder:
        archive.seek(0)
        extract_archive(archive, folder)
        environment = read_environment(
            _entry(entry) or ".", base=folder, adapter=adapter, domain=domain
        )
        relative = os.path.relpath(environment.root or folder, folder.resolve())
        yield Unpacked(
            folder,
            # The folder's name means nothing; in the hub an environment has one already.
            replace(environment, name=name),
            "" if relative == "." else Path(relative).as_posix(),
        )


def read_reference(source: str, *, name: str, domain: str) -> Environment:
    """Read a source that has no files, e.g. ``gymnasium:CartPole-v1``.

    Raises:
        InvalidInputError: Not such a source; paths of the server are none.
    """
    if not REFERENCE.fullmatch(source):
        raise InvalidInputError(
            "input.unsupported_source",
            "The source is not one that the hub can read.",
            "Write gymnasium:ID or reasoning-gym:NAME, or upload an archive.",
        )
    return replace(read_environment(source, domain=domain), name=name)


def keep_tree(folder: Path, archive_sha256: str) -> None:
    """Move an unpacked archive to its place, unless somebody was faster."""
    target = _trees() / archive_sha256
    if not target.is_dir():
        taken = size_of(folder)
        try:
            folder.rename(target)
        except OSError:
            if not target.is_dir():
                raise
        else:
            store.write_json(_record(target), {"bytes": taken})


def store_parsed(environment: Environment) -> str:
    """Store the parsed environment as a blob and return its name."""
    document = json.dumps(environment_to_json(environment), ensure_ascii=True)
    blob = blob_store().put(document.encode(), max_bytes=PARSED_MAX_BYTES)
    return blob.sha256


def version_root(version: EnvironmentVersion) -> Path | None:
    """Return the folder of a version's files, unpacked again where need be; None without files.

    Raises:
        MachineryError: The stored archive is damaged or gone.
    """
    if not version.archive_sha256:
        return None
    tree = _trees() / version.archive_sha256
    if not tree.is_dir():
        _unpack_again(version.archive_sha256)
    elif not _record(tree).exists():
        # Unpacked before the store counted packages, or by a process killed between the two.
        store.write_json(_record(tree), {"bytes": size_of(tree)})
    store.touch(_record(tree))
    return tree / version.root_path if version.root_path else tree


def version_environment(version: EnvironmentVersion) -> Environment:
    """Return the parsed environment of a version, with its files in place.

    Raises:
        MachineryError: What is stored is damaged or gone.
    """
    document = json.loads(blob_store().read(version.parsed_sha256))
    return environment_from_json(document, version_root(version))


def _unpack_again(archive_sha256: str) -> None:
    with tempfile.TemporaryFile(dir=_trees()) as archive, _new_folder() as folder:
        blob_store().copy_to(archive_sha256, archive)
        archive.seek(0)
        try:
            extract_archive(archive, folder)
            keep_tree(folder, archive_sha256)
        except InvalidInputError as error:
            raise MachineryError(
                "tree.not_unpackable",
                f"The stored archive {archive_sha256} cannot be unpacked: {error.message}",
                "Restore the blob store from a backup.",
            ) from error


@contextmanager
def _new_folder() -> Iterator[Path]:
    """Yield a path for a folder that does not exist yet; whatever was not moved away goes."""
    holder = Path(tempfile.mkdtemp(dir=_trees(), prefix=f".new-{label()}-"))
    try:
        yield holder / "tree"
    finally:
        shutil.rmtree(holder, ignore_errors=True)


def _entry(entry: str) -> str:
    path = PurePosixPath(entry)
    if path.is_absolute() or ".." in path.parts or "\0" in entry:
        raise InvalidInputError(
            "input.bad_entry",
            "The entry must be a path within the archive.",
            "Write path/to/file.py:ClassName.",
        )
    return entry


def _record(tree: Path) -> Path:
    return tree.with_name(f"{tree.name}.json")


def _trees() -> Path:
    trees: Path = settings.QH_HOME / "trees"
    trees.mkdir(mode=0o755, parents=True, exist_ok=True)
    return trees
