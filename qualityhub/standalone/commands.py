"""The children of an installation: with which words and in which environment each is started."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from qualityhub.standalone import ports
from qualityhub.standalone.parts import Command
from qualityhub.standalone.secretfiles import ensure_secret

if TYPE_CHECKING:
    from qualityhub.standalone.layout import Home

WEB_PROCESSES = 2
WEB_THREADS = 8
_SECRET_BYTES = 50
_ROOT = Path(__file__).resolve().parents[2]


class ChildEnvironment:
    """What children find in their environment: the caller's, and what the supervisor decided.

    Addresses with a password go through files, so that no listing of processes and no report of a
    crash shows them.

    Args:
        home: The data folder.
        url: Where the hub answers, unless ``QH_PUBLIC_URL`` says otherwise.
        host: What it listens on.
    """

    def __init__(self, home: Home, url: str, host: str) -> None:
        self.home = home
        self._env = dict(os.environ)
        self.own_database = not _stated("QH_DATABASE_URL")
        self.own_broker = not _stated("QH_BROKER_URL")
        self._env["QH_HOME"] = str(home.root)
        self._env["DJANGO_SETTINGS_MODULE"] = "qualityhub.settings"
        self._env["PYTHONUNBUFFERED"] = "1"
        if _ROOT.name not in {"site-packages", "dist-packages"}:
            # Run from a tree: children start elsewhere and must find this very one.
            paths = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH", "")])]
            self._env["PYTHONPATH"] = os.pathsep.join(paths)
        if not _stated("QH_PUBLIC_URL"):
            self._env["QH_PUBLIC_URL"] = url
        if not _stated("QH_ALLOWED_HOSTS"):
            self._env["QH_ALLOWED_HOSTS"] = ",".join(ports.reachable_names(host))
        if not _stated("QH_SECRET_KEY"):
            ensure_secret(home.secrets / "secret-key", _SECRET_BYTES)
            self._env["QH_SECRET_KEY_FILE"] = str(home.secrets / "secret-key")

    @property
    def public_url(self) -> str:
        """Where people reach the hub."""
        return self._env["QH_PUBLIC_URL"].rstrip("/")

    def use_database(self, url: str) -> None:
        """Point the children at the embedded database."""
        self._use("QH_DATABASE_URL", "database-url", url)

    def use_broker(self, url: str) -> None:
        """Point the children at the embedded broker."""
        self._use("QH_BROKER_URL", "broker-url", url)

    def variables(self) -> dict[str, str]:
        """Return the environment of a child."""
        return dict(self._env)

    def _use(self, name: str, file: str, url: str) -> None:
        path = self.home.run / file
        path.unlink(missing_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(url + "\n")
        self._env.pop(name, None)
        self._env[f"{name}_FILE"] = str(path)


def set_up(environment: ChildEnvironment, result_fd: int, *, links: int) -> Command:
    """Return the child that migrates and makes the first team; see `firstrun`."""
    words = ["--result-fd", str(result_fd), "--links", str(links)]
    if environment.own_database:
        words.append("--sole")
    return _python(
        environment,
        "setup",
        "qualityhub.standalone.firstrun",
        *words,
        pass_fds=(result_fd,),
        patience=20,
    )


def web(environment: ChildEnvironment, listening: int) -> Command:
    """Return the web server on a socket that listens already."""
    return _python(
        environment,
        "web",
        "gunicorn",
        "qualityhub.wsgi:application",
        *("--bind", f"fd://{listening}"),
        *("--worker-class", "gthread"),
        *("--workers", str(WEB_PROCESSES)),
        *("--threads", str(WEB_THREADS)),
        "--preload",  # One import instead of one per process.
        # The most there is: what is longer is answered by gunicorn, and in HTML.
        *("--limit-request-line", "8190"),
        *("--timeout", "120"),
        *("--graceful-timeout", "10"),
        *("--log-level", "warning"),
        "--no-control-socket",
        pass_fds=(listening,),
        patience=15,
    )


def worker(environment: ChildEnvironment, concurrency: int) -> Command:
    """Return the worker; it finishes or hands back what it holds before it ends."""
    return _python(
        environment,
        "worker",
        "celery",
        *("--app", "workers.app", "--skip-checks", "worker"),
        *("--concurrency", str(concurrency)),
        *("--hostname", f"worker-{os.getpid()}@%h"),
        *("--loglevel", "info"),
        *("--without-gossip", "--without-mingle"),  # One worker: nobody to talk to at the start.
        patience=30,
        # Without its supervisor the database goes too: nothing it does now could be stored.
        death_signal=signal.SIGQUIT,
    )


def beat(environment: ChildEnvironment) -> Command:
    """Return the scheduler."""
    return _python(
        environment,
        "beat",
        "celery",
        *("--app", "workers.app", "--skip-checks", "beat"),
        *("--pidfile", ""),
        *("--loglevel", "warning"),
        patience=5,
    )


def demo(environment: ChildEnvironment) -> Command:
    """Return the child that loads the demonstration."""
    return _python(environment, "demo", "qualityhub.standalone.demo", patience=20)


def probe_host(host: str) -> str:
    """Return an address that reaches what listens on the host."""
    if host.strip("[]") == "0.0.0.0":  # noqa: S104 - compared, not bound.
        return "127.0.0.1"
    if host.strip("[]") == "::":
        return "[::1]"
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _python(
    environment: ChildEnvironment,
    name: str,
    module: str,
    *words: str,
    pass_fds: tuple[int, ...] = (),
    patience: float = 10,
    death_signal: signal.Signals = signal.SIGTERM,
) -> Command:
    return Command(
        name,
        [sys.executable, "-P", "-m", module, *words],  # -P: nothing is imported from the cwd.
        environment.variables(),
        environment.home.root,
        signal.SIGTERM,
        patience,
        pass_fds,
        death_signal,
    )


def _stated(name: str) -> bool:
    return bool(os.environ.get(name) or os.environ.get(f"{name}_FILE"))
