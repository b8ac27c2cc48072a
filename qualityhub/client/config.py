"""Where ``qualityhub login`` remembers a hub: one file that only its owner may read."""

from __future__ import annotations

import contextlib
import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from qualityhub.engine.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Mapping

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True)
class Login:
    """A hub's address and the token that opens it."""

    url: str
    token: str


def config_file(environ: Mapping[str, str] | None = None) -> Path:
    """Return where the login is kept, below the user's configuration folder."""
    environ = os.environ if environ is None else environ
    stated = environ.get("XDG_CONFIG_HOME", "")
    if stated and Path(stated).is_absolute():
        return Path(stated) / "qualityhub" / "login.json"
    from platformdirs import user_config_path  # noqa: PLC0415 - only needed here.

    return user_config_path("qualityhub", appauthor=False) / "login.json"


def read_login(path: Path | None = None) -> Login | None:
    """Return the remembered login, or None.

    Raises:
        InvalidInputError: The file is unreadable, malformed, or open to other users.
    """
    path = path or config_file()
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            document = json.load(file)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise InvalidInputError(
            "login.unreadable",
            f"Cannot read the login file {path}: {error}.",
            "Remove it and run: qualityhub login",
        ) from error
    if stat.S_IMODE(mode) & 0o077:
        raise InvalidInputError(
            "login.exposed",
            f"The login file {path} may be read by other users.",
            f"Run: chmod 600 {path} (and consider a new token).",
        )
    url, token = (
        document.get(key) if isinstance(document, dict) else None for key in ("url", "token")
    )
    if not isinstance(url, str) or not isinstance(token, str):
        raise InvalidInputError(
            "login.malformed",
            f"The login file {path} has no url or token.",
            "Remove it and run: qualityhub login",
        )
    return Login(checked_url(url), token)


def write_login(login: Login, path: Path | None = None) -> Path:
    """Remember a login in a file of mode 0600, whole or not at all, and return where.

    Raises:
        InvalidInputError: The file cannot be written.
    """
    path = path or config_file()
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump({"url": login.url, "token": login.token}, file)
        part.replace(path)
    except OSError as error:
        raise InvalidInputError(
            "login.unwritable", f"Cannot write the login file {path}: {error.strerror}."
        ) from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
    return path


def checked_url(url: str) -> str:
    """Return a hub's address without a trailing slash.

    Raises:
        InvalidInputError: Not an http or https address, or one with a query or credentials.
    """
    parts = urlsplit(url.strip())
    if (
        parts.scheme not in {"http", "https"}
        or not parts.hostname
        or parts.username
        or parts.query
        or parts.fragment
    ):
        raise InvalidInputError(
            "login.bad_url",
            f"{url!r} is no address of a hub.",
            "It looks like https://quality.example.org",
        )
    return url.strip().rstrip("/")


def is_exposed(url: str) -> bool:
    """Say whether a token would travel to another machine in clear."""
    parts = urlsplit(url)
    return parts.scheme == "http" and parts.hostname not in _LOOPBACK
