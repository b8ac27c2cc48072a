"""Where every step of making a layer runs: with network or with foreign code, never with both."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from uv import find_uv_bin

from qualityhub.engine.sandbox.interpreters import Interpreter
from qualityhub.engine.sandbox.layers.model import LOG_CHARACTERS
from qualityhub.engine.sandbox.port import MIB, Command, Completed, Limits, Mount, Sandbox

UV = "/qh/uv"
LIMITS = Limits(
    wall_s=900,
    cpu_s=1800,
    memory_bytes=6 * 1024 * MIB,
    pids=1024,
    disk_bytes=8 * 1024 * MIB,
    files=1_000_000,
    open_files=8192,
    output_bytes=4 * MIB,
    collect_bytes=16 * MIB,
)
PATH = ("/usr/local/bin", "/usr/bin", "/bin")

_PROGRAMS = Path(__file__).parent / "programs"
# Ours or pip's name, and the one that uv reads; the first that is set wins.
_INDEX = (
    ("UV_DEFAULT_INDEX", ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL")),
    ("UV_INDEX", ("UV_INDEX", "UV_EXTRA_INDEX_URL", "PIP_EXTRA_INDEX_URL")),
)
_PASSED = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY", "UV_HTTP_TIMEOUT", "UV_NO_INDEX")


class Workbench:
    """Runs uv, and small programs of ours, for one interpreter."""

    def __init__(self, python: Interpreter, home: Path, sandbox: Sandbox) -> None:
        """Look at the settings of this process.

        Args:
            python: Interpreter that layers are for; it also runs our programs.
            home: Our data folder.
            sandbox: Provider.
        """
        self.python = python
        self.home = home
        self._sandbox = sandbox
        self._uv = Path(find_uv_bin())
        self._index, self._index_mounts = index_settings(os.environ)

    def target(self) -> dict[str, str]:
        """Return what a file must fit: interpreter, platform, C library."""
        return {
            "python": self.python.version,
            "implementation": self.python.implementation,
            "platform": f"{platform.system()} {platform.machine()}",
            "libc": self.python.libc,
        }

    def uv_digest(self) -> str:
        """Return the digest of the program itself."""
        seen = self._uv.stat()
        return _file_digest(self._uv, seen.st_size, seen.st_mtime_ns)

    def index_digest(self) -> str:
        """Return what tells one configuration of indexes from another."""
        return hashlib.sha256(repr(sorted(self._index.items())).encode()).hexdigest()

    def fetch(self, argv: tuple[str, ...], **options: Any) -> Completed:
        """Run a step that has the network and runs no foreign code.

        Args:
            argv: uv, or a program of ours.
            options: Of :class:`Command`; ``env`` and ``mounts`` are added to.
        """
        env = {**self._index, **options.pop("env", {})}
        mounts = (*self._index_mounts, *options.pop("mounts", ()))
        return self._run(argv, env=env, mounts=mounts, network=True, **options)

    def make(self, argv: tuple[str, ...], **options: Any) -> Completed:
        """Run a step that may run foreign code; it has no network and knows of no index.

        Args:
            argv: uv, a shell that starts it, or a program of ours.
            options: Of :class:`Command`; ``env`` and ``mounts`` are added to.
        """
        env = {"UV_OFFLINE": "1", "UV_NO_CONFIG": "1", **options.pop("env", {})}
        return self._run(argv, env=env, network=False, **options)

    def program(self, name: str) -> tuple[str, ...]:
        """Return the argv of a program of ours; its input is JSON on standard input."""
        text = (_PROGRAMS / f"{name}.py").read_text(encoding="utf-8")
        return (str(self.python.path), "-I", "-S", "-c", text)

    def _run(
        self,
        argv: tuple[str, ...],
        *,
        env: Mapping[str, str],
        mounts: tuple[Mount, ...] = (),
        **options: Any,
    ) -> Completed:
        # One folder holds cache and target, so that uv can link between them; like everything
        # else here it is gone with the world, so no step can leave something for another.
        own = [Mount("/qh", None, "scratch"), Mount(UV, self._uv)]
        if not self.python.in_usr:
            own.append(Mount(str(self.python.prefix), self.python.prefix))
        words = {
            "PATH": ":".join((str(self.python.path.parent), *PATH)),
            "HOME": "/root",
            "LANG": "C.UTF-8",
            "UV_CACHE_DIR": "/qh/cache",
            "UV_NO_PROGRESS": "1",
            "UV_PYTHON_DOWNLOADS": "never",
            "UV_LINK_MODE": "hardlink",
            **env,
        }
        return self._sandbox.run(
            Command(
                argv=argv,
                env=words,
                mounts=(*own, *mounts),
                cwd="/qh",
                limits=LIMITS,
                **options,
            )
        )


@functools.cache
def _file_digest(path: Path, size: int, changed_ns: int) -> str:  # noqa: ARG001 - they void it
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def log_of(seen: Completed) -> str:
    """Return the tail of what a step said."""
    text = (seen.stdout + seen.stderr).decode(errors="replace").replace("\0", "")
    return text[-LOG_CHARACTERS:]


def quoted(path: Path | str) -> str:
    """Return a path as one word of a shell."""
    return "'" + str(path).replace("'", "'\\''") + "'"


def index_settings(environ: Mapping[str, str]) -> tuple[dict[str, str], tuple[Mount, ...]]:
    """Return what a step must know to reach the configured indexes, and what must be mounted."""
    settings = {}
    mounts: dict[str, Mount] = {}
    for target, names in _INDEX:
        value = next((environ[name] for name in names if environ.get(name)), "")
        if value:
            settings[target] = value
        for part in value.split():
            folder = Path(part.removeprefix("file://"))
            if part.startswith("file:///") and folder.is_dir():
                mounts[str(folder)] = Mount(str(folder), folder)
    for name in _PASSED:
        for variant in (name, name.lower()):
            if environ.get(variant):
                settings[variant] = environ[variant]
    certificate = Path(environ.get("SSL_CERT_FILE") or "")
    if certificate.is_file():
        settings["SSL_CERT_FILE"] = "/qh/certificates.pem"
        mounts["certificates"] = Mount("/qh/certificates.pem", certificate)
    return settings, tuple(mounts.values())
