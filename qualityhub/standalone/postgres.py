"""PostgreSQL as a child of this machine's installation: no TCP, no system user, no container.

Two roles exist: a superuser that only this module uses, and ``qualityhub``, which owns the
database of the same name. Both authenticate by password (SCRAM) over a unix socket in a folder
that only its owner enters, so the name of the operating system's user does not matter.

PostgreSQL refuses to run as root. Started by root, it runs as a fixed unprivileged user id that
needs no entry in the system's user table.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self
from urllib.parse import quote

from qualityhub.engine.errors import ConflictError, MachineryError
from qualityhub.standalone.pgbinaries import find_binaries, private_copy, reachable_by
from qualityhub.standalone.pgcluster import ENVIRONMENT, Cluster, quoted
from qualityhub.standalone.process import spawn, tail
from qualityhub.standalone.secretfiles import ensure_secret, private_folder, read_secret

if TYPE_CHECKING:
    from collections.abc import Mapping

SERVICE_UID = 26026
"""User and group id of the server when root starts it."""

_ROLE = "qualityhub"
_DATABASE = "qualityhub"
_SUPERUSER = "qh_superuser"
# A unix socket's whole path must fit into 107 bytes.
_LONGEST_SOCKET_FOLDER = 107 - len("/.s.PGSQL.5432.lock")


class EmbeddedPostgres:
    """One PostgreSQL server over one data folder.

    ``start`` is ``prepare`` (slow the first time, may run in any thread), ``launch`` (in a thread
    that lives as long as the server should) and ``wait_ready``.

    Args:
        data_dir: Folder for everything this server keeps; created if it does not exist.
        binaries: Folder of PostgreSQL's programs; default: those of the installed wheel.
        secrets_dir: Where the generated passwords live; default: ``secrets`` in `data_dir`.
        runtime_dir: Where a private copy of the programs goes when the server's user cannot reach
            the installed ones; default: ``runtime`` in `data_dir`.
        log_file: Where the server's lines go; default: ``postgres.log`` in `data_dir`.
        settings: Further server settings, e.g. ``{"shared_buffers": "256MB"}``.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        binaries: Path | None = None,
        secrets_dir: Path | None = None,
        runtime_dir: Path | None = None,
        log_file: Path | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.data_dir = Path(data_dir).absolute()
        self.log_file = log_file or self.data_dir / "postgres.log"
        self._secrets = secrets_dir or self.data_dir / "secrets"
        self._runtime = runtime_dir or self.data_dir / "runtime"
        self._wanted_binaries = binaries
        self._settings = dict(settings or {})
        self._uid = SERVICE_UID if os.geteuid() == 0 else None
        self._cluster = Cluster(self.data_dir / "data", self._uid)
        self._binaries: Path | None = None
        self._socket_dir: Path | None = None
        self._borrowed_socket_dir: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The running server's process id."""
        return self._process.pid if self._process else None

    @property
    def process(self) -> subprocess.Popen[bytes] | None:
        """The running server."""
        return self._process

    @property
    def binaries(self) -> Path:
        """Folder of the programs in use (``pg_dump`` and the like live there too)."""
        if self._binaries is None:
            self._binaries = self._usable_binaries()
        return self._binaries

    @property
    def url(self) -> str:
        """Address for the application: ``postgresql://…?host=SOCKET_FOLDER``.

        Raises:
            MachineryError: ``postgres.not_started`` before `launch`.
        """
        return self._address(_ROLE, _DATABASE, "postgres-password")

    def start(self, timeout: float = 120) -> str:
        """Create the data folder if need be, start the server and wait until it answers.

        Args:
            timeout: Seconds to wait at most; recovery after a crash can take a while.

        Returns:
            The address, see `url`.

        Raises:
            ConflictError: The data folder is in use, unreachable, or of another major version.
            MachineryError: The server did not start; the message ends with its last lines.
        """
        self.prepare()
        self.launch()
        self.wait_ready(timeout)
        return self.url

    def prepare(self) -> None:
        """Create the cluster the first time and check everything a start needs."""
        private_folder(self.data_dir)
        if self._uid is not None:
            # Our own folder, never its parents: the server's user must pass through it.
            self.data_dir.chmod(0o711)
        self._check_reachable(self.data_dir)
        self._cluster.check_version()
        self._cluster.check_not_running()
        if not self._cluster.exists:
            password = ensure_secret(self._secrets / "postgres-superuser-password")
            self._cluster.create(self.binaries / "initdb", _SUPERUSER, password)
        self._cluster.configure(self._settings)

    def launch(self) -> None:
        """Start the server; it is told to stop at once when the calling thread ends."""
        self._socket_dir = self._make_socket_dir()
        with self.log_file.open("ab") as log:
            self._process = spawn(
                [
                    str(self.binaries / "postgres"),
                    "-D",
                    str(self._cluster.path),
                    "-k",
                    str(self._socket_dir),
                ],
                env=ENVIRONMENT,
                cwd=self._cluster.path if self._uid is None else Path("/"),
                stdout=log,
                death_signal=signal.SIGINT,  # PostgreSQL's own "fast" shutdown: clean, at once.
                uid=self._uid,
            )

    def wait_ready(self, timeout: float = 120) -> None:
        """Wait until the server accepts connections, and finish the first start.

        Args:
            timeout: Seconds to wait at most.

        Raises:
            MachineryError: ``postgres.start_failed`` or ``postgres.start_timeout``.
        """
        process = self._process
        if process is None:
            raise _not_started()
        deadline = time.monotonic() + timeout
        while not self._says_ready(process.pid):
            if process.poll() is not None:
                self._process = None
                self._remove_socket_dir()
                raise MachineryError(
                    "postgres.start_failed",
                    f"PostgreSQL ended with status {process.returncode} while starting."
                    + quoted(tail(self.log_file, 4)),
                    f"Its log is {self.log_file}.",
                )
            if time.monotonic() >= deadline:
                self.stop()
                raise MachineryError(
                    "postgres.start_timeout",
                    f"PostgreSQL was not ready after {timeout:.0f} s."
                    + quoted(tail(self.log_file, 4)),
                    f"Its log is {self.log_file}.",
                )
            time.sleep(0.02)
        self._ensure_database()

    def stop(self, timeout: float = 30) -> None:
        """End the server: fast first, then without a checkpoint, then by force.

        Args:
            timeout: Seconds for a clean end; committed data is safe either way.
        """
        process, self._process = self._process, None
        if process is not None:
            for sig, seconds in ((signal.SIGINT, timeout), (signal.SIGQUIT, 5.0)):
                if process.poll() is not None:
                    break
                process.send_signal(sig)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(seconds)
            if process.poll() is None:
                process.kill()
                process.wait()
        self._remove_socket_dir()

    def __enter__(self) -> Self:
        """Start the server for a ``with`` block."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop it."""
        self.stop()

    # -- what a start needs ---------------------------------------------------------------------

    def _usable_binaries(self) -> Path:
        binaries = self._wanted_binaries or find_binaries()
        if self._uid is None or reachable_by(binaries, self._uid) is None:
            return binaries
        copied = private_copy(binaries, self._runtime)
        self._check_reachable(copied)
        return copied

    def _check_reachable(self, folder: Path) -> None:
        if self._uid is None:
            return
        closed = reachable_by(folder, self._uid)
        if closed is not None:
            raise ConflictError(
                "postgres.unreachable",
                f"Started by root, PostgreSQL runs as user id {self._uid}, which may not enter "
                f"{closed} on the way to {folder}.",
                "Choose a data folder elsewhere with --home or QH_HOME "
                f"(default: /var/lib/qualityhub), or run: chmod o+x {closed}",
            )

    def _make_socket_dir(self) -> Path:
        folder = self.data_dir / "run"
        if len(os.fsencode(folder)) > _LONGEST_SOCKET_FOLDER:
            # 0700 and a random name, so nobody else can be there first.
            folder = Path(tempfile.mkdtemp(prefix="qh-pg-", dir="/tmp"))
            self._borrowed_socket_dir = folder
        else:
            private_folder(folder)
        if self._uid is not None:
            os.chown(folder, self._uid, self._uid)
        folder.chmod(0o700)
        return folder

    def _remove_socket_dir(self) -> None:
        if self._borrowed_socket_dir is not None:
            shutil.rmtree(self._borrowed_socket_dir, ignore_errors=True)
            self._borrowed_socket_dir = None
        self._socket_dir = None

    # -- once it runs ---------------------------------------------------------------------------

    def _says_ready(self, pid: int) -> bool:
        """Read the server's own status line; costs no connection."""
        try:
            lines = (self._cluster.path / "postmaster.pid").read_text(encoding="utf-8").split("\n")
        except OSError:
            return False
        return len(lines) > 7 and lines[0] == str(pid) and lines[7].strip() == "ready"

    def _ensure_database(self) -> None:
        """Create the application's role and database after the very first start."""
        marker = self._secrets / "postgres-password"
        done = self._cluster.path / "qualityhub.ready"
        if done.exists() and marker.exists():
            return
        import psycopg  # noqa: PLC0415 - needed once per data folder; costs a second start nothing.
        from psycopg import sql  # noqa: PLC0415 - as above.

        password = ensure_secret(marker)
        address = self._address(_SUPERUSER, "postgres", "postgres-superuser-password")
        with psycopg.connect(address, autocommit=True, connect_timeout=10) as connection:
            role, database = sql.Identifier(_ROLE), sql.Identifier(_DATABASE)
            known = connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [_ROLE])
            verb = sql.SQL("ALTER" if known.fetchone() else "CREATE")
            connection.execute(
                sql.SQL("{} ROLE {} LOGIN CREATEDB PASSWORD {}").format(
                    verb, role, sql.Literal(password)
                )
            )
            known = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [_DATABASE])
            if not known.fetchone():
                connection.execute(sql.SQL("CREATE DATABASE {} OWNER {}").format(database, role))
        self._cluster.write(done, "The role and the database of the application exist.\n")

    def _address(self, role: str, database: str, secret: str) -> str:
        if self._socket_dir is None:
            raise _not_started()
        try:
            password = read_secret(self._secrets / secret)
        except FileNotFoundError as error:
            raise ConflictError(
                "postgres.secret_lost",
                f"The password file {self._secrets / secret} is gone.",
                "Restore it from a backup of the data folder.",
            ) from error
        host = quote(str(self._socket_dir), safe="")
        return f"postgresql://{role}:{quote(password, safe='')}@/{database}?host={host}"


def _not_started() -> MachineryError:
    return MachineryError("postgres.not_started", "The embedded PostgreSQL is not running.")
