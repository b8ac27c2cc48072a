"""Generated secrets: one file each, readable by the owner alone."""

from __future__ import annotations

import os
import secrets
import stat
from typing import TYPE_CHECKING

from qualityhub.engine.errors import ConflictError

if TYPE_CHECKING:
    from pathlib import Path


def private_folder(path: Path, mode: int = 0o700) -> Path:
    """Create a folder with exactly this mode, whatever the umask; an existing one is left alone."""
    try:
        path.mkdir(parents=True, mode=mode)
    except FileExistsError:
        return path
    path.chmod(mode)
    return path


def ensure_secret(path: Path, size: int = 32) -> str:
    """Return the secret in this file, generating it the first time.

    Args:
        path: The file; its folder is created with mode 0700.
        size: Bytes of randomness of a new secret.

    Raises:
        ConflictError: ``secret.open`` when others can read the file, ``secret.empty`` when it
            holds nothing.
    """
    private_folder(path.parent)
    try:
        # O_EXCL: two starters at once must end with one secret.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        return read_secret(path)
    value = secrets.token_urlsafe(size)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(value + "\n")
        file.flush()
        os.fsync(file.fileno())
    return value


def read_secret(path: Path) -> str:
    """Return the secret in this file, refusing one that others can read.

    Raises:
        ConflictError: ``secret.open`` or ``secret.empty``.
        OSError: When the file cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    with os.fdopen(descriptor, encoding="ascii", errors="replace") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        if mode & 0o077:
            raise ConflictError(
                "secret.open",
                f"The secret {path} can be read by other users (mode {mode:04o}).",
                f"Run: chmod 600 {path}",
            )
        value = file.read().strip()
    if not value:
        raise ConflictError(
            "secret.empty",
            f"The secret {path} is empty.",
            "Restore it from a backup, or delete it to have a new one generated.",
        )
    return value
