"""What this machine can do, what it lacks, and what to do about it."""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from qualityhub.engine.errors import QualityHubError
from qualityhub.standalone import broker, pgbinaries, ports
from qualityhub.standalone.layout import find_home
from qualityhub.standalone.runstate import read_state

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from qualityhub.standalone.layout import Home

_ORDER = ("ok", "warn", "fail")
_NEEDED_DISK = 2 * 2**30
_WANTED_DISK = 10 * 2**30


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at.

    Attributes:
        name: What was looked at.
        status: ``ok``, ``warn`` (works with less) or ``fail`` (`up` will not work).
        detail: What was seen.
        remedy: What to do; empty where nothing is needed.
    """

    name: str
    status: str
    detail: str
    remedy: str = ""

    def as_json(self) -> dict[str, str]:
        """Return it for programs."""
        return {
            "name": self.name,
            "status": self.status,
            "detail": self.detail,
            "remedy": self.remedy,
        }

    def as_text(self) -> str:
        """Return it for people."""
        line = f"{self.status:<4}  {self.name:<17}  {self.detail}"
        return f"{line}\n{'':<25}-> {self.remedy}" if self.remedy else line


def worst(checks: Sequence[Check]) -> str:
    """Return the worst status of all."""
    return max((check.status for check in checks), key=_ORDER.index, default="ok")


def examine(stated: Path | None, host: str, port: int) -> list[Check]:
    """Look at everything an installation needs.

    Args:
        stated: Data folder of the command line.
        host: Address `up` would listen on.
        port: Port it would take.
    """
    home = find_home(stated)
    looks: tuple[tuple[str, Callable[[], list[Check]]], ...] = (
        ("python", _python),
        ("packages", _packages),
        ("settings", _settings),
        ("home", lambda: _home(home)),
        ("disk", lambda: _disk(home)),
        ("memory", _memory),
        ("port", lambda: _port(home, host, port)),
        ("database", lambda: _database(home)),
        ("broker", _broker),
        ("sandbox", lambda: _sandbox(home)),
    )
    checks: list[Check] = []
    for name, look in looks:
        try:
            checks += look()
        except QualityHubError as error:
            checks.append(Check(name, "fail", error.message, error.hint))
        except (OSError, ImportError) as error:
            checks.append(Check(name, "fail", f"{type(error).__name__}: {error}"))
    return checks


def _python() -> list[Check]:
    version = ".".join(map(str, sys.version_info[:3]))
    return [Check("python", "ok", f"{version} at {sys.executable}")]


def _packages() -> list[Check]:
    wanted = {"django": "server", "celery": "server", "gunicorn": "server", "psycopg": "server"}
    missing = [name for name in wanted if importlib.util.find_spec(name) is None]
    if missing:
        return [
            Check(
                "packages",
                "fail",
                f"not installed: {', '.join(missing)}",
                'pip install "qualityhub[server,standalone]"',
            )
        ]
    return [Check("packages", "ok", "the server's packages are installed")]


def _settings() -> list[Check]:
    settings = importlib.import_module("qualityhub.settings")
    near = settings.ENV.near_misses()
    if near:
        detail = "; ".join(
            f"{name} is set but unknown, did you mean {known}?" for name, known in near
        )
        return [Check("settings", "warn", detail, "Rename it, or unset it.")]
    return [Check("settings", "ok", "every QH_ variable is understood")]


def _home(home: Home) -> list[Check]:
    existing = _nearest(home.root)
    if not os.access(existing, os.W_OK | os.X_OK):
        return [
            Check(
                "home",
                "fail",
                f"{home.root}: this user may not write to {existing}",
                "Choose another data folder with --home or QH_HOME.",
            )
        ]
    if os.geteuid() == 0 and (closed := pgbinaries.reachable_by(existing, 26026)):
        return [
            Check(
                "home",
                "fail",
                f"{home.root}: the database's user may not enter {closed}",
                "Choose another data folder with --home or QH_HOME; "
                "the default is /var/lib/qualityhub.",
            )
        ]
    state = read_state(home)
    used = f"in use by pid {state.pid}, {state.url}" if state and state.alive else "not in use"
    return [Check("home", "ok", f"{home.root} ({used})")]


def _disk(home: Home) -> list[Check]:
    usage = shutil.disk_usage(_nearest(home.root))
    detail = f"{usage.free / 2**30:.1f} GiB free for {home.root}"
    if usage.free < _NEEDED_DISK:
        return [Check("disk", "fail", detail, "Free some space, or choose another data folder.")]
    if usage.free < _WANTED_DISK:
        remedy = "Dependency layers and images need space: 10 GiB and more is comfortable."
        return [Check("disk", "warn", detail, remedy)]
    return [Check("disk", "ok", detail)]


def _memory() -> list[Check]:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    detail = f"{total / 2**30:.1f} GiB, {cores} cores"
    if total < 2 * 2**30:
        return [Check("memory", "warn", detail, "Below 2 GiB, start with --workers 1.")]
    return [Check("memory", "ok", detail)]


def _port(home: Home, host: str, port: int) -> list[Check]:
    state = read_state(home)
    if state and state.alive and state.url.endswith(f":{port}"):
        return [Check("port", "ok", f"{host}:{port} is this hub's own")]
    ports.listen(host, port).close()
    return [Check("port", "ok", f"{host}:{port} is free")]


def _database(home: Home) -> list[Check]:
    url = _stated("QH_DATABASE_URL")
    if not url:
        folder = pgbinaries.find_binaries()
        found = home.postgres / "data" / "PG_VERSION"
        major = found.read_text(encoding="ascii").strip() if found.is_file() else None
        if major not in {None, str(pgbinaries.MAJOR)}:
            return [
                Check(
                    "database",
                    "fail",
                    f"{home.postgres} was written by PostgreSQL {major}, "
                    f"this installation brings {pgbinaries.MAJOR}",
                    "Dump it with the version that wrote it and load the dump.",
                )
            ]
        return [Check("database", "ok", f"embedded PostgreSQL {pgbinaries.MAJOR}: {folder}")]
    import psycopg  # noqa: PLC0415 - only where a database of one's own is used.

    try:
        with psycopg.connect(url, connect_timeout=5) as connection:
            version = connection.info.server_version
    except psycopg.Error as error:
        detail = str(error).strip().splitlines()[0] if str(error).strip() else "no answer"
        return [
            Check(
                "database",
                "fail",
                f"QH_DATABASE_URL does not answer: {detail}",
                "Check that the server runs, and the user, password and name in the URL.",
            )
        ]
    return [Check("database", "ok", f"PostgreSQL {version // 10000}.{version % 10000} answers")]


def _broker() -> list[Check]:
    url = _stated("QH_BROKER_URL")
    if not url:
        return [Check("broker", "ok", f"embedded Valkey: {broker.find_server()}")]
    parts = urlsplit(url)
    try:
        if parts.scheme == "redis+socket":
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(5)
                connection.connect(unquote(parts.path))
        else:
            socket.create_connection((parts.hostname or "", parts.port or 6379), 5).close()
    except OSError as error:
        return [
            Check(
                "broker",
                "fail",
                f"QH_BROKER_URL does not answer: {error.strerror or error}",
                "Check that Redis or Valkey runs there.",
            )
        ]
    return [Check("broker", "ok", "QH_BROKER_URL accepts connections")]


def _sandbox(home: Home) -> list[Check]:
    from qualityhub.engine.sandbox.explain import limits_in_words  # noqa: PLC0415
    from qualityhub.engine.sandbox.select import capabilities  # noqa: PLC0415 - probes the kernel.

    found = list(capabilities(home.root))
    checks = []
    taken = next((item.provider for item in found if item.usable), "")
    for item in found:
        parts = ["what auto takes" if item.provider == taken else "usable"] if item.usable else []
        parts += [item.reason, limits_in_words(item)]
        if item.usable and not item.ownership and "owner" not in item.reason:
            parts.append("file ownership is not real")
        status = "ok" if item.usable else "warn"
        detail = "; ".join(filter(None, parts))
        checks.append(Check(f"sandbox {item.provider}", status, detail, item.remedy))
    if not taken:
        checks.append(
            Check(
                "sandbox",
                "warn",
                "no sandbox can run here: inspections are limited to static rules",
                "Follow one of the remedies above.",
            )
        )
    return checks


def _stated(name: str) -> str:
    file = os.environ.get(f"{name}_FILE", "")
    if file:
        return Path(file).read_text(encoding="utf-8").strip()
    return os.environ.get(name, "")


def _nearest(path: Path) -> Path:
    """Return the path itself, or its nearest existing parent."""
    while not path.exists():
        path = path.parent
    return path
