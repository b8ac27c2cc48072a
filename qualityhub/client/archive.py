"""Packs an environment's files for upload, and unpacks what comes back."""

from __future__ import annotations

from contextlib import contextmanager
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING

from qualityhub.engine.environments.archives import pack_tree
from qualityhub.engine.environments.files import entry_of
from qualityhub.engine.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BESIDE = ("pyproject.toml", "requirements.txt")
"""Files that say what a single file depends on; the owner's manifest travels anyway."""


@contextmanager
def packed(path: Path) -> Iterator[IO[bytes]]:
    """Give a tar.gz of a file or folder, open at its beginning; equal files give equal bytes.

    Args:
        path: A folder, whose content becomes the archive's root, or one file, which brings what
            describes it beside.

    Raises:
        InvalidInputError: Nothing is there, or something that cannot be uploaded.
    """
    if not path.exists():
        raise InvalidInputError("input.not_found", f"There is no file or folder {path}.")
    with TemporaryFile() as file:
        if path.is_dir():
            pack_tree(path, file)
        else:
            root = path.absolute().parent
            names = [path.name, *(name for name in BESIDE if (root / name).is_file())]
            pack_tree(root, file, files=[entry_of(root, name) for name in dict.fromkeys(names)])
        file.seek(0)
        yield file
