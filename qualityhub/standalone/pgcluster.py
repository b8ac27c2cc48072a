"""PostgreSQL's data folder: created whole or not at all, checked before every start."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from qualityhub.engine.errors import ConflictError, MachineryError
from qualityhub.standalone.pgbinaries import MAJOR
from qualityhub.standalone.process import is_running, start_time, wait_gone

if TYPE_CHECKING:
    from collections.abc import Mapping

ENVIRONMENT = {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC", "PGTZ": "UTC"}
"""Whole environment of the server and its programs: nothing of the caller's reaches them."""

_LOCALES = (
    "--encoding=UTF8",
    "--locale=C",
    "--locale-provider=builtin",
    "--builtin-locale=C.UTF-8",
)
# One system call for the file system instead of one per file.
_SYNC = ("--sync-method=syncfs",) if sys.platform == "linux" else ()
_HBA = """\
# Written by QualityHub. Sockets only; the folder of the socket is closed to other users.
local all all scram-sha-256
"""


class Cluster:
    """The folder of one PostgreSQL cluster.

    Args:
        path: The folder itself; its parent must exist.
        uid: User and group id that owns it; ``None``: whoever runs this.
    """

    def __init__(self, path: Path, uid: int | None) -> None:
        self.path = path
        self.uid = uid

    @property
    def exists(self) -> bool:
        """Whether it was created already."""
        return (self.path / "PG_VERSION").is_file()

    def check_version(self) -> None:
        """Refuse data of another major version, and files that are no cluster.

        Raises:
            ConflictError: ``postgres.other_major`` or ``postgres.not_a_cluster``.
        """
        try:
            found = (self.path / "PG_VERSION").read_text(encoding="ascii").strip()
        except FileNotFoundError:
            if self.path.is_dir() and any(self.path.iterdir()):
                raise ConflictError(
                    "postgres.not_a_cluster",
                    f"{self.path} holds files but no PostgreSQL data.",
                    "Move it away, or choose another data folder with --home or QH_HOME.",
                ) from None
            return
        if found != str(MAJOR):
            raise ConflictError(
                "postgres.other_major",
                f"{self.path} was written by PostgreSQL {found}; "
                f"this installation brings PostgreSQL {MAJOR} and will not touch it.",
                "Nothing was changed. Either go back to the QualityHub version that wrote it, "
                f"dump there (pg_dump of PostgreSQL {found}), move {self.path.parent} away, start "
                "again and load the dump; or set QH_DATABASE_URL to a server that runs it.",
            )

    def check_not_running(self) -> None:
        """Refuse a folder whose server runs; wait for one that is going; clear a false alarm.

        Raises:
            ConflictError: ``postgres.running``.
        """
        pid_file = self.path / "postmaster.pid"
        try:
            pid = int(pid_file.read_text(encoding="utf-8").split("\n", 1)[0])
        except (OSError, ValueError):
            return
        started = start_time(pid)
        if started is None:
            return  # Dead: PostgreSQL clears the file, after looking for left-over backends.
        if _serves(pid, self.path):
            # Orphans of a killed supervisor are already shutting down.
            if wait_gone(pid, started, 15):
                return
            raise ConflictError(
                "postgres.running",
                f"A PostgreSQL server (pid {pid}) already uses {self.path}.",
                "Stop the installation that uses it: qualityhub stop",
            )
        # The pid was given to a stranger. PostgreSQL would refuse to start for a process of the
        # same user; only when no backend of the old server is left may the file go.
        deadline = time.monotonic() + 15
        while backends := _backends(self.path):
            if time.monotonic() >= deadline:
                raise ConflictError(
                    "postgres.running",
                    f"Processes of an ended PostgreSQL server still use {self.path}: "
                    f"{', '.join(map(str, backends))}.",
                    "End them, then start again.",
                )
            time.sleep(0.1)
        pid_file.unlink(missing_ok=True)

    def create(self, initdb: Path, superuser: str, password: str) -> None:
        """Run initdb into a scratch folder and move it into place when it is whole.

        Args:
            initdb: The program.
            superuser: Name of the bootstrap role.
            password: Its password.

        Raises:
            MachineryError: ``postgres.initdb_failed`` or ``postgres.no_account``.
        """
        user = _initdb_account() if self.uid is not None else None
        if user is None and not _has_name(os.geteuid()):
            raise MachineryError(
                "postgres.no_account",
                f"User id {os.geteuid()} has no name in this system's user table, "
                "and PostgreSQL's data folder cannot be created without one.",
                "Add the name to /etc/passwd, or set QH_DATABASE_URL.",
            )
        for leftover in self.path.parent.glob(".new-*"):
            shutil.rmtree(leftover)  # Of an interrupted first start.
        scratch = Path(tempfile.mkdtemp(prefix=".new-", dir=self.path.parent))
        read_end, write_end = os.pipe()
        try:
            os.write(write_end, password.encode() + b"\n")
            os.close(write_end)
            if user is not None:
                os.chown(scratch, user.pw_uid, user.pw_gid)
                os.fchown(read_end, user.pw_uid, user.pw_gid)
            done = subprocess.run(
                [
                    str(initdb),
                    "-D",
                    str(scratch),
                    "-U",
                    superuser,
                    f"--pwfile=/dev/fd/{read_end}",
                    "--auth=scram-sha-256",
                    "--data-checksums",
                    *_SYNC,
                    *_LOCALES,
                ],
                env=ENVIRONMENT,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                user=user.pw_uid if user else None,
                group=user.pw_gid if user else None,
                extra_groups=[] if user else None,
                umask=0o077,
                pass_fds=(read_end,),
                check=False,
            )
            if done.returncode != 0:
                output = done.stdout.decode(errors="replace").strip().splitlines()
                raise MachineryError(
                    "postgres.initdb_failed",
                    f"PostgreSQL's data folder could not be created.{quoted(output[-4:])}",
                    f"Check the free space and the rights of {self.path.parent}.",
                )
            self._hand_over(scratch)
            with contextlib.suppress(FileNotFoundError):
                self.path.rmdir()
            scratch.rename(self.path)
            _sync_folder(self.path.parent)
        finally:
            os.close(read_end)
            shutil.rmtree(scratch, ignore_errors=True)

    def _hand_over(self, root: Path) -> None:
        """Make the server's user the owner of a tree."""
        if self.uid is None:
            return
        for folder, _, files in os.walk(root):
            os.chown(folder, self.uid, self.uid)
            for name in files:
                os.chown(Path(folder) / name, self.uid, self.uid, follow_symlinks=False)

    def configure(self, extra: Mapping[str, str]) -> None:
        """Write the settings and the access rules.

        Args:
            extra: Further settings; they win.
        """
        settings = {
            "listen_addresses": "",
            "unix_socket_permissions": "0700",
            "max_connections": "100",
            "password_encryption": "scram-sha-256",
            "shared_buffers": "128MB",
            "fsync": "on",
            "synchronous_commit": "on",
            "full_page_writes": "on",
            "timezone": "UTC",
            "log_timezone": "UTC",
            "log_line_prefix": "%m [%p] ",
            "log_checkpoints": "off",
            "max_wal_size": "1GB",
            "jit": "off",  # Our statements are short; compiling them costs more than it saves.
            **extra,
        }
        quoted = (
            f"{key} = '{value.replace(chr(39), chr(39) * 2)}'" for key, value in settings.items()
        )
        text = "# Written by QualityHub at every start; changes here are lost.\n" + "\n".join(
            quoted
        )
        self.write(self.path / "qualityhub.conf", text + "\n")
        self.write(self.path / "pg_hba.conf", _HBA)
        main = self.path / "postgresql.conf"
        include = "include_if_exists = 'qualityhub.conf'"
        present = main.read_text(encoding="utf-8")
        if include not in present.splitlines():
            self.write(main, f"{present.rstrip()}\n\n{include}\n")

    def write(self, path: Path, text: str) -> None:
        """Replace a file of the cluster, owned by the server's user."""
        descriptor, name = tempfile.mkstemp(prefix=".qh-", dir=self.path)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            if self.uid is not None:
                os.fchown(file.fileno(), self.uid, self.uid)
        Path(name).replace(path)


def _initdb_account() -> pwd.struct_passwd:
    """Return a system account to run initdb as.

    Unlike the server, initdb insists on a name for its user id. It borrows one for the few seconds
    it takes, from an account that no process runs as; then the files go to the server's user id.
    """
    busy = set()
    for entry in _processes():
        with contextlib.suppress(OSError):
            busy.add(entry.stat().st_uid)
    accounts = [account for account in pwd.getpwall() if account.pw_uid != 0]
    for account in sorted(accounts, key=lambda a: (a.pw_uid in busy, a.pw_uid >= 1000, a.pw_uid)):
        return account
    raise MachineryError(
        "postgres.no_account",
        "This system's user table knows only root; PostgreSQL's data folder needs another name.",
        "Add any system account (for example: nobody), or set QH_DATABASE_URL.",
    )


def _has_name(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _processes() -> list[Path]:
    with contextlib.suppress(OSError):
        return [entry for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return []


def _serves(pid: int, cluster: Path) -> bool:
    """Say whether this process is a PostgreSQL server over this very folder."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return is_running(pid) and not Path("/proc/self").exists()
    return Path(os.fsdecode(words[0])).name == "postgres" and os.fsencode(cluster) in words


def _backends(cluster: Path) -> list[int]:
    """Return the processes whose working folder is the cluster: PostgreSQL's and nobody else's."""
    found = []
    for entry in _processes():
        with contextlib.suppress(OSError):
            if (entry / "cwd").readlink() == cluster and entry.name != str(os.getpid()):
                found.append(int(entry.name))
    return found


def quoted(lines: list[str]) -> str:
    """Return a program's last words as a part of a sentence."""
    words = " | ".join(line.strip() for line in lines if line.strip())
    return f" It said: {words}" if words else ""
