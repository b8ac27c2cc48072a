"""Packs an environment's folder for upload: the same files give the same bytes."""

from __future__ import annotations

import gzip
import os
import stat
import tarfile
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING

from qualityhub.engine.digest import LEFT_OUT
from qualityhub.engine.errors import InvalidInputError, LimitExceededError

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_BYTES = 4 * 1024**3


@contextmanager
def packed(path: Path) -> Iterator[IO[bytes]]:
    """Give a gzip'ed tar archive of a file or folder, open at its beginning.

    Times, owners and umask stay out, so that packing again gives the same archive. What no digest
    covers (``.git``, ``__pycache__``, ``.qualityhub``) is left out.

    Args:
        path: A folder, whose content becomes the archive's root, or one file.

    Raises:
        InvalidInputError: Nothing there, or something that is no file, folder or link.
        LimitExceededError: More than 4 GiB before compression.
    """
    if not path.exists():
        raise InvalidInputError("input.not_found", f"There is no file or folder {path}.")
    with TemporaryFile() as file:
        try:
            with (
                gzip.GzipFile(
                    fileobj=file, mode="wb", filename="", mtime=0, compresslevel=6
                ) as packer,
                tarfile.open(fileobj=packer, mode="w", format=tarfile.PAX_FORMAT) as archive,
            ):
                _add(archive, path)
        except OSError as error:
            raise InvalidInputError(
                "input.unreadable", f"Cannot read {error.filename or path}: {error.strerror}."
            ) from error
        file.seek(0)
        yield file


def _add(archive: tarfile.TarFile, path: Path) -> None:
    total = 0
    members = _members(path) if path.is_dir() else [(path.name, path)]
    for name, member in members:
        status = member.lstat()
        entry = tarfile.TarInfo(name)
        entry.mode = 0o755 if status.st_mode & 0o111 else 0o644
        if stat.S_ISLNK(status.st_mode):
            entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, _target(member), 0o777
            archive.addfile(entry)
        elif stat.S_ISDIR(status.st_mode):
            entry.type = tarfile.DIRTYPE
            archive.addfile(entry)
        elif stat.S_ISREG(status.st_mode):
            entry.size = status.st_size
            total += entry.size
            if total > MAX_BYTES:
                raise LimitExceededError(
                    "input.too_large", f"{path} holds more than {MAX_BYTES >> 30} GiB."
                )
            with member.open("rb") as content:
                archive.addfile(entry, content)
        else:
            raise InvalidInputError(
                "input.special_file",
                f"{member} is a device, socket or pipe and cannot be uploaded.",
                "Remove it from the environment.",
            )


def _members(folder: Path, prefix: str = "") -> Iterator[tuple[str, Path]]:
    with os.scandir(folder) as entries:
        ordered = sorted(entries, key=lambda entry: entry.name)
    for entry in ordered:
        if entry.name in LEFT_OUT:
            continue
        name = f"{prefix}{entry.name}"
        yield name, Path(entry.path)
        if entry.is_dir(follow_symlinks=False):
            yield from _members(Path(entry.path), f"{name}/")


def _target(link: Path) -> str:
    return os.readlink(link)  # noqa: PTH115 - a Path would normalise what is written there.
