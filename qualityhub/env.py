"""Readers for settings: environment variables only, prefix ``QH_``, each declared with its page.

Every reader both reads and documents: ``docs/reference/settings.md`` is generated from what was
declared. A wrong value stops the start with its cause and its fix. No Django here, so that the
supervisor can use the same rules before anything is configured.
"""

from __future__ import annotations

import os
import re
import secrets
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlsplit

from platformdirs import user_data_path

from qualityhub.engine.errors import QualityHubError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SIZES = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
SIZE = re.compile(r"^(\d+)\s*(|KiB|MiB|GiB|TiB)$")
LABEL = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,62})=([A-Za-z0-9][A-Za-z0-9._-]{0,62})")
DATABASE_OPTIONS = frozenset(
    {
        "application_name",
        "connect_timeout",
        "keepalives",
        "keepalives_idle",
        "options",
        "sslcert",
        "sslkey",
        "sslmode",
        "sslrootcert",
        "target_session_attrs",
    }
)


class SettingsError(QualityHubError):
    """A setting has a value that cannot be used; the start ends here."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One declared setting, as the reference page shows it.

    Attributes:
        name: Environment variable.
        kind: What values look like, for people.
        default: Shown default; empty where there is none.
        help: One or two sentences.
        secret: Whether ``NAME_FILE`` is read too, and the value never shown.
    """

    name: str
    kind: str
    default: str
    help: str
    secret: bool = False


class Reader:
    """Reads settings from one mapping and remembers what was declared.

    Args:
        environ: The environment, ``os.environ`` unless a test brings its own.
    """

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self.environ = os.environ if environ is None else environ
        self.declared: dict[str, Setting] = {}

    def text(
        self,
        name: str,
        default: str,
        help: str,  # noqa: A002 - reads as what it is at the call.
        *,
        choices: Sequence[str] = (),
        shown: str | None = None,
    ) -> str:
        """Return a text; with choices, one of them."""
        kind = " | ".join(choices) if choices else "text"
        self._declare(name, kind, default if shown is None else shown, help)
        value = self._raw(name) or default
        if choices and value not in choices:
            near = get_close_matches(value, choices, 1)
            guess = f" Did you mean {near[0]}?" if near else ""
            raise SettingsError(
                "settings.not_a_choice",
                f"{name} is {value!r}, which is none of: {', '.join(choices)}.{guess}",
                f"Set {name} to one of: {', '.join(choices)}.",
            )
        return value

    def secret(self, name: str, help: str) -> str | None:  # noqa: A002
        """Return a secret from ``NAME`` or the file that ``NAME_FILE`` names, or None."""
        self._declare(name, "text", "", help, secret=True)
        value, file = self.environ.get(name, ""), self.environ.get(f"{name}_FILE", "")
        if value and file:
            raise SettingsError(
                "settings.both", f"{name} and {name}_FILE are both set.", "Keep one of the two."
            )
        if not file:
            return value or None
        try:
            content = Path(file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(
                "settings.secret_unreadable",
                f"{name}_FILE names {file}, which cannot be read: {error}.",
                "Check the path and that this user may read the file.",
            ) from error
        if not content:
            raise SettingsError(
                "settings.secret_empty", f"{name}_FILE names {file}, which is empty.", "Write it."
            )
        return content

    def boolean(self, name: str, default: bool, help: str) -> bool:  # noqa: A002
        """Return a boolean; only the words true and false count."""
        self._declare(name, "true | false", str(default).lower(), help)
        value = self._raw(name).lower()
        if value not in {"", "true", "false"}:
            raise SettingsError(
                "settings.not_boolean",
                f"{name} is {value!r}; only true and false are understood.",
                f"Set {name}=true or {name}=false, or leave it unset.",
            )
        return default if not value else value == "true"

    def integer(
        self,
        name: str,
        default: int,
        help: str,  # noqa: A002
        *,
        low: int = 0,
        high: int = 2**31 - 1,
    ) -> int:
        """Return a whole number within bounds."""
        self._declare(name, f"whole number {low}-{high}", str(default), help)
        value = self._raw(name)
        if not value:
            return default
        if not re.fullmatch(r"\d{1,12}", value) or not low <= int(value) <= high:
            raise SettingsError(
                "settings.not_integer",
                f"{name} is {value!r}; it must be a whole number from {low} to {high}.",
                f"Set {name}={default} or another number in that range.",
            )
        return int(value)

    def size(self, name: str, default: str, help: str) -> int:  # noqa: A002
        """Return bytes from a number with an optional KiB, MiB, GiB or TiB."""
        self._declare(name, "bytes, e.g. 64MiB", default, help)
        value = self._raw(name) or default
        match = SIZE.fullmatch(value)
        if not match or len(match[1]) > 15:
            raise SettingsError(
                "settings.not_size",
                f"{name} is {value!r}, which is not a size.",
                f"Write bytes or a unit, e.g. {name}={default}.",
            )
        return int(match[1]) * SIZES[match[2]]

    def words(self, name: str, default: Sequence[str], help: str) -> list[str]:  # noqa: A002
        """Return a list written with commas."""
        self._declare(name, "words, separated by commas", ",".join(default), help)
        parts = [part.strip() for part in self._raw(name).split(",")]
        return [part for part in parts if part] or list(default)

    def labels(self, name: str, help: str) -> dict[str, str]:  # noqa: A002
        """Return labels written as ``key=value``, separated by commas."""
        self._declare(name, "key=value, separated by commas", "", help)
        found: dict[str, str] = {}
        for part in filter(None, (item.strip() for item in self._raw(name).split(","))):
            match = LABEL.fullmatch(part)
            if match is None or match[1] in found:
                raise SettingsError(
                    "settings.not_a_label",
                    f"{name} has {part!r}, which is no key=value, or whose key comes twice.",
                    "Write letters, digits, dots, dashes and underscores, e.g. "
                    f"{name}=zone=a,disk=fast.",
                )
            found[match[1]] = match[2]
        return found

    def path(self, name: str, default: Path, help: str, *, shown: str) -> Path:  # noqa: A002
        """Return an absolute path; a relative one would mean something else per process."""
        return self.path_if_set(name, help, shown=shown) or default

    def path_if_set(self, name: str, help: str, *, shown: str) -> Path | None:  # noqa: A002
        """Return an absolute path, or None where it is not set."""
        self._declare(name, "absolute path", shown, help)
        if not self._raw(name):
            return None
        value = Path(self._raw(name)).expanduser()
        if not value.is_absolute():
            raise SettingsError(
                "settings.relative_path",
                f"{name} is {str(value)!r}, a relative path.",
                f"Write the whole path, e.g. {name}={value.absolute()}.",
            )
        return value

    def url(self, name: str, default: str, help: str, *, schemes: Sequence[str]) -> str:  # noqa: A002
        """Return a URL of one of the schemes; ``NAME_FILE`` works: it may hold a password."""
        value = self.secret(name, help) or default
        kind = "URL: " + ", ".join(f"{known}://" for known in schemes)
        self._declare(name, kind, default, help, secret=True)
        scheme = value.partition("://")[0]
        if "://" not in value or scheme not in schemes:
            raise SettingsError(
                "settings.bad_url",
                f"{name} begins with {scheme!r}; understood are {', '.join(schemes)}.",
                f"Write {name}={schemes[0]}://…",
            )
        return value

    def near_misses(self) -> list[tuple[str, str]]:
        """Return variables that are set, unknown, and close to a declared name."""
        known = {*self.declared, *(f"{name}_FILE" for name in self.declared)}
        found = []
        for name in sorted(self.environ):
            if name.startswith("QH_") and name not in known:
                near = get_close_matches(name, sorted(known), 1, 0.9)
                if near:
                    found.append((name, near[0]))
        return found

    def page(self) -> str:
        """Return the reference page of all declared settings, as Markdown."""
        lines = [
            "# Settings",
            "",
            "Environment variables only. Where *file* is yes, `NAME_FILE` may name a file",
            "that holds the value. Generated by `manage.py settings_page`; do not edit.",
            "",
            "| name | value | default | file | meaning |",
            "|---|---|---|---|---|",
        ]
        for setting in sorted(self.declared.values(), key=lambda item: item.name):
            default = f"`{setting.default}`" if setting.default else ""
            kind = setting.kind.replace("|", "\\|")
            file = "yes" if setting.secret else ""
            lines.append(f"| `{setting.name}` | {kind} | {default} | {file} | {setting.help} |")
        return "\n".join(lines) + "\n"

    def _raw(self, name: str) -> str:
        return self.environ.get(name, "").strip()

    def _declare(
        self,
        name: str,
        kind: str,
        default: str,
        help: str,  # noqa: A002
        *,
        secret: bool = False,
    ) -> None:
        self.declared[name] = Setting(name, kind, default, help, secret)


def default_home() -> Path:
    """Return where data lives unless ``QH_HOME`` says otherwise.

    The administrator's home folder is closed to other users, and PostgreSQL refuses to run as
    root: so root's data lives in the system's place for it.
    """
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        return Path("/var/lib/qualityhub")
    return user_data_path("qualityhub", appauthor=False)


def ephemeral_secret() -> str:
    """Return a key that lives as long as this process."""
    return secrets.token_urlsafe(50)


def database_from_url(url: str) -> dict[str, object]:
    """Return Django's connection settings for a PostgreSQL URL.

    ``postgresql://user:password@host:5432/name?sslmode=require`` and, for a Unix socket,
    ``postgresql://user@/name?host=/folder/of/the/socket``.

    Raises:
        SettingsError: Another database, a missing name, or an unknown option.
    """
    parts = urlsplit(url)
    if parts.scheme not in {"postgresql", "postgres"}:
        raise SettingsError(
            "settings.not_postgresql",
            f"QH_DATABASE_URL begins with {parts.scheme!r}; only PostgreSQL is supported.",
            "Write QH_DATABASE_URL=postgresql://user:password@host:5432/name.",
        )
    name = unquote(parts.path.lstrip("/"))
    if not name:
        raise SettingsError(
            "settings.no_database",
            "QH_DATABASE_URL names no database.",
            "End it with the database's name: postgresql://user@host/name.",
        )
    try:
        port = parts.port
    except ValueError as error:
        raise SettingsError(
            "settings.bad_port", f"QH_DATABASE_URL has a bad port: {error}.", "Use 1 to 65535."
        ) from error
    query = dict(parse_qsl(parts.query))
    host = query.pop("host", "") or unquote(parts.hostname or "")
    port_text = query.pop("port", "") or (str(port) if port else "")
    unknown = sorted(set(query) - DATABASE_OPTIONS)
    if unknown:
        raise SettingsError(
            "settings.unknown_option",
            f"QH_DATABASE_URL has the unknown option {unknown[0]!r}.",
            f"Understood are: host, port, {', '.join(sorted(DATABASE_OPTIONS))}.",
        )
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": name,
        "USER": query.pop("user", "") or unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": host,
        "PORT": port_text,
        "OPTIONS": query,
    }
