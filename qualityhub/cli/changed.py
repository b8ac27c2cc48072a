"""Whether files below a source changed since a git revision, asked without running its code.

A repository may name programs in its own configuration (filters, external diffs, file-system
monitors, ssh commands) that git runs while it compares a work tree. An environment is foreign, so
git is only asked what the revision holds; the files are compared here.
"""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from qualityhub.engine.digest import LEFT_OUT
from qualityhub.engine.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterator

_GIT_ENV = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "LC_ALL": "C",
}
_BLOCK = 1024 * 1024
FILES_BESIDE = ("qualityhub.toml", "pyproject.toml", "requirements.txt")


def files_of(source: str) -> Path | None:
    """Return the path that a source reads, or None for one that has no files here."""
    if (path := Path(source)).exists():
        return path
    head, colon, _ = source.rpartition(":")
    if colon and Path(head).is_file():
        # The class may import its neighbours.
        return Path(head).parent
    return None


def changed_since(path: Path, revision: str) -> bool:
    """Say whether anything below the path differs from what the revision holds.

    Files that git would convert (line ends, large-file pointers) count as changed: inspecting once
    too often is the safe side.

    Args:
        path: File or folder inside a git work tree.
        revision: Any name of a commit.

    Raises:
        InvalidInputError: No repository, no git, or no such revision.
    """
    path = path.absolute()
    folder = path if path.is_dir() else path.parent
    top = _top(folder)
    commit = _git(
        top, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"
    )
    if commit is None:
        raise InvalidInputError(
            "git.unknown_revision",
            f"The repository at {top} has no revision {revision!r}.",
            "In CI, fetch enough history for it (a shallow clone has one commit).",
        )
    resolved = folder.resolve()
    if path.is_dir():
        wanted = [resolved.relative_to(top).as_posix()]
    else:
        names = (path.name, *FILES_BESIDE)
        wanted = [(resolved / name).relative_to(top).as_posix() for name in names]
    listing = _git(
        top, "--literal-pathspecs", "ls-tree", "-r", "-z", "--full-tree", commit.decode().strip(),
        "--", *[item for item in wanted if item != "."],
    )  # fmt: skip
    held = _parsed(listing or b"")
    there = dict(_present(top, [top / item for item in wanted]))
    return held.keys() != there.keys() or any(
        not _same(there[name], mode, name_of_blob) for name, (mode, name_of_blob) in held.items()
    )


def _top(folder: Path) -> Path:
    found = _git(folder, "rev-parse", "--show-toplevel")
    if found is None:
        raise InvalidInputError(
            "git.no_repository",
            f"{folder} is in no git repository, so nothing can be said about changes.",
            "Leave out --changed-since.",
        )
    return Path(os.fsdecode(found).rstrip("\n")).resolve()


def _git(folder: Path, *args: str) -> bytes | None:
    try:
        done = subprocess.run(
            ["git", "-c", "core.fsmonitor=false", "-C", str(folder), *args],
            env={**os.environ, **_GIT_ENV},
            capture_output=True,
            stdin=subprocess.DEVNULL,
            check=False,
            timeout=60,
        )
    except FileNotFoundError as error:
        raise InvalidInputError(
            "git.missing", "--changed-since needs git, which is not on the PATH."
        ) from error
    except subprocess.TimeoutExpired as error:
        raise InvalidInputError("git.slow", f"git did not answer in {folder}.") from error
    return done.stdout if done.returncode == 0 else None


def _parsed(listing: bytes) -> dict[str, tuple[str, str]]:
    held = {}
    for row in listing.split(b"\0"):
        if row:
            head, _, name = row.partition(b"\t")
            mode, _, blob = head.decode().split(" ")
            if not LEFT_OUT.intersection(os.fsdecode(name).split("/")):
                held[os.fsdecode(name)] = (mode, blob)
    return held


def _present(top: Path, wanted: list[Path]) -> Iterator[tuple[str, Path]]:
    for path in wanted:
        if path.is_dir() and not path.is_symlink():
            yield from _walk(top, path)
        elif path.is_symlink() or path.exists():
            yield path.relative_to(top).as_posix(), path


def _walk(top: Path, folder: Path) -> Iterator[tuple[str, Path]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name in LEFT_OUT:
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(top, Path(entry.path))
            else:
                path = Path(entry.path)
                yield path.relative_to(top).as_posix(), path


def _same(path: Path, mode: str, blob: str) -> bool:
    algorithm = "sha256" if len(blob) == 64 else "sha1"
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        content = os.fsencode(path.readlink())
        return mode == "120000" and _blob(algorithm, len(content), [content]) == blob
    if not stat.S_ISREG(status.st_mode):
        return False
    executable = "100755" if status.st_mode & 0o100 else "100644"
    if mode != executable:
        return False
    with path.open("rb") as file:
        return _blob(algorithm, status.st_size, iter(lambda: file.read(_BLOCK), b"")) == blob


def _blob(algorithm: str, size: int, blocks: Iterator[bytes] | list[bytes]) -> str:
    # git's own name of a blob; not used for security.
    digest = hashlib.new(algorithm, b"blob %d\0" % size, usedforsecurity=False)
    for block in blocks:
        digest.update(block)
    return digest.hexdigest()
