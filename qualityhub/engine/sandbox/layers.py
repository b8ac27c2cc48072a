"""Dependency layers: a virtual environment by uv, made once, named by its lock, mounted read-only.

Everything happens inside a build sandbox; it alone has network. Resolving comes first and needs
no code of a package as long as wheels exist; only when there are none may a source distribution
be built, inside the same sandbox, and the log says so.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from uv import find_uv_bin

from qualityhub.engine.digest import digest_json
from qualityhub.engine.errors import MachineryError
from qualityhub.engine.sandbox import store
from qualityhub.engine.sandbox.interpreters import Interpreter
from qualityhub.engine.sandbox.port import MIB, Command, Completed, Limits, Mount, Sandbox

TARGET = "/qh/layer"
"""Where a layer is built and where it is mounted: a virtual environment knows its own path."""

BUILDER_VERSION = 2
LOG_CHARACTERS = 8_000
_UV = "/qh/uv"
_LIMITS = Limits(
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
# Ours or pip's name, and the one that uv reads; the first that is set wins.
_INDEX = (
    ("UV_DEFAULT_INDEX", ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL")),
    ("UV_INDEX", ("UV_INDEX", "UV_EXTRA_INDEX_URL", "PIP_EXTRA_INDEX_URL")),
)
_PASSED = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY", "UV_HTTP_TIMEOUT", "UV_NO_INDEX")
_UNREACHABLE = (
    "error sending request",
    "dns error",
    "tcp connect error",
    "connection refused",
    "connection reset",
    "operation timed out",
    "network unreachable",
    "client error (connect)",
    "http status server error",
    "because the network was disabled",
    "invalid peer certificate",
    "401 unauthorized",
    "403 forbidden",
    "407 proxy",
    "429 too many",
)
_NO_WHEEL = (
    "building source distributions is disabled",
    "no usable wheels",
    "has no wheels",
    "no-build",
    "builds are disabled",
    "building is disabled",
)
# Said by uv of what an environment asked for. A build's own output may say anything, so these win.
_AT_FAULT = (
    "no solution found",
    "not found in the package registry",
    "build backend returned an error",
)


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer that is ready to mount at :data:`TARGET`.

    Attributes:
        path: Host folder.
        digest: Over requirements, lock, interpreter, platform, uv and builder version.
        identity: The same without where the interpreter lies on this host; goes into trial keys.
        lock: ``name==version``, sorted.
        log: Tail of uv's output, at most :data:`LOG_CHARACTERS`.
    """

    path: Path
    digest: str
    identity: str
    lock: tuple[str, ...]
    log: str


@dataclass(frozen=True, slots=True)
class LayerFailed:
    """The declared requirements cannot be had: the environment's own fault.

    Attributes:
        reason: One sentence.
        log: Tail of uv's output.
        requirement: The requirement at fault, empty where it is not one alone.
    """

    reason: str
    log: str = ""
    requirement: str = ""


@dataclass(frozen=True, slots=True)
class LayerUnavailable:
    """This host cannot make it now; says nothing about the environment.

    Attributes:
        reason: One sentence.
        would_need: What would make it possible.
        log: Tail of uv's output.
    """

    reason: str
    would_need: str
    log: str = ""


Progress = Callable[[str], None]


def build_layer(
    requirements: tuple[str, ...],
    python: Interpreter,
    home: Path,
    sandbox: Sandbox,
    on_progress: Progress | None = None,
    *,
    refresh: bool = False,
) -> Layer | LayerFailed | LayerUnavailable:
    """Return the layer of some requirements, from the store or newly made.

    Args:
        requirements: PEP 508 strings; direct references are refused, since only the configured
            index is a source. None at all is a layer too: it hides what this host has installed.
        python: Interpreter that the layer is for.
        home: Our data folder.
        sandbox: Provider that runs uv.
        on_progress: Told one line at each step.
        refresh: Resolve again although a lock is stored.

    Raises:
        SandboxUnavailableError: The provider cannot run here.
        MachineryError: The sandbox or our store failed.
    """
    tell = on_progress or (lambda _: None)
    wrong = _first_wrong(requirements)
    if wrong is not None:
        return wrong
    builder = _Builder(tuple(sorted(set(requirements))), python, home, sandbox)
    with store.locked(home, "layers", builder.question):
        locked = builder.lock(tell, refresh=refresh)
        if not isinstance(locked, _Locked):
            return locked
        found = locate_layer(builder.digest(locked), home)
        return found or builder.install(locked, tell)


def locate_layer(digest: str, home: Path) -> Layer | None:
    """Return a layer that is already there, or None."""
    found = store.lookup(home, "layers", digest)
    if found is None:
        return None
    path, facts = found
    return Layer(path, digest, facts["identity"], tuple(facts["lock"]), facts["log"])


@dataclass(frozen=True, slots=True)
class _Locked:
    """What uv resolved: the text with hashes, and whether it must build from source."""

    text: str
    builds: bool
    log: str

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(
            sorted(
                re.findall(r"^([A-Za-z0-9._-]+(?:\[[^\]]*\])?==[^\s;\\]+)", self.text, re.MULTILINE)
            )
        )


class _Builder:
    """Resolves and installs one set of requirements."""

    def __init__(
        self, requirements: tuple[str, ...], python: Interpreter, home: Path, sandbox: Sandbox
    ) -> None:
        self._requirements = requirements
        self._python = python
        self._home = home
        self._sandbox = sandbox
        self._uv = Path(find_uv_bin())
        self._index, self._index_mounts = _index_settings(os.environ)
        self.question = digest_json(
            "layer-question",
            {
                "requirements": list(requirements),
                "python": python.version,
                "implementation": python.implementation,
                "platform": f"{platform.system()} {platform.machine()}",
                "libc": python.libc,
                "index": hashlib.sha256(repr(sorted(self._index.items())).encode()).hexdigest(),
            },
        )

    def digest(self, locked: _Locked) -> str:
        """Return the name of the layer that a lock leads to; its content knows the prefix."""
        return digest_json("layer", [self.identity(locked), str(self._python.prefix)])

    def identity(self, locked: _Locked) -> str:
        """Return what the layer means on any host."""
        return digest_json(
            "layer-identity",
            {
                "requirements": list(self._requirements),
                "lock": hashlib.sha256(locked.text.encode()).hexdigest(),
                "python": self._python.version,
                "implementation": self._python.implementation,
                "platform": f"{platform.system()} {platform.machine()}",
                "libc": self._python.libc,
                "uv": _file_digest(self._uv),
                "builder": BUILDER_VERSION,
            },
        )

    def lock(self, tell: Progress, *, refresh: bool) -> _Locked | LayerFailed | LayerUnavailable:
        """Return the stored lock, or resolve."""
        if not self._requirements:
            return _Locked("", builds=False, log="")
        path = self._home / "resolved" / f"{store.short(self.question)}.json"
        if not refresh:
            kept = store.read_json(path)
            if kept is not None:
                return _Locked(kept["text"], kept["builds"], kept["log"])
        tell(f"resolving {_count(self._requirements)}")
        seen = self._resolve(builds=False)
        builds = False
        if seen.exit_code != 0 and _mentions(seen, _NO_WHEEL):
            tell("no wheel for everything: building from source in the sandbox")
            seen, builds = self._resolve(builds=True), True
        if seen.exit_code != 0 or "/qh/lock.txt" not in seen.collected:
            return self._failure("resolve", seen)
        locked = _Locked(seen.collected["/qh/lock.txt"].decode(), builds, _tail(seen))
        store.write_json(path, {"text": locked.text, "builds": locked.builds, "log": locked.log})
        return locked

    def install(self, locked: _Locked, tell: Progress) -> Layer | LayerFailed | LayerUnavailable:
        """Make the virtual environment and publish it."""
        if locked.names:
            tell(f"installing {len(locked.names)} packages")
        digest = self.digest(locked)
        script = f"set -e; {_UV} venv --quiet --python {_quoted(self._python.path)} {TARGET}"
        if locked.names:
            script += (
                f"; exec {_UV} pip install --quiet --python {TARGET}/bin/python --require-hashes "
                f"--compile-bytecode {'' if locked.builds else '--no-build '}-r /qh/lock.txt"
            )
        with store.fresh(self._home, "layers") as place:
            seen = self._run(
                script, "lock.txt", locked.text, keep=place, network=bool(locked.names)
            )
            if seen.exit_code != 0:
                return self._failure("install", seen)
            if not place.is_dir():
                raise MachineryError("layer.lost", "a finished layer did not come back")
            log = (locked.log + _tail(seen))[-LOG_CHARACTERS:]
            path = store.publish(
                self._home,
                "layers",
                digest,
                place,
                {
                    "identity": self.identity(locked),
                    "lock": list(locked.names),
                    "log": log,
                    "python": self._python.version,
                    "requirements": list(self._requirements),
                },
            )
        return Layer(path, digest, self.identity(locked), locked.names, log)

    def _resolve(self, *, builds: bool) -> Completed:
        script = (
            f"exec {_UV} pip compile --quiet --python {_quoted(self._python.path)} "
            f"--generate-hashes --no-header --no-annotate --no-emit-index-url "
            f"{'' if builds else '--no-build '}-o /qh/lock.txt /qh/in.txt"
        )
        text = "".join(f"{line}\n" for line in self._requirements)
        return self._run(script, "in.txt", text, collect=("/qh/lock.txt",))

    def _run(
        self,
        script: str,
        name: str,
        text: str,
        *,
        collect: tuple[str, ...] = (),
        keep: Path | None = None,
        network: bool = True,
    ) -> Completed:
        # The file travels on standard input: nothing of ours needs to be readable by the sandbox's
        # user. One folder holds cache and target, so that uv can link between them.
        mounts = [
            Mount("/qh", None, "scratch"),
            Mount(_UV, self._uv),
            *self._index_mounts,
        ]
        if not self._python.in_usr:
            mounts.append(Mount(str(self._python.prefix), self._python.prefix))
        env = {
            "PATH": f"{self._python.path.parent}:/usr/local/bin:/usr/bin:/bin",
            "HOME": "/root",
            "LANG": "C.UTF-8",
            "UV_CACHE_DIR": "/qh/cache",
            "UV_NO_CONFIG": "1",
            "UV_NO_PROGRESS": "1",
            "UV_PYTHON_DOWNLOADS": "never",
            "UV_LINK_MODE": "hardlink",
            "PYC_INVALIDATION_MODE": "UNCHECKED_HASH",
            **self._index,
        }
        return self._sandbox.run(
            Command(
                argv=("/bin/sh", "-c", f"cat >/qh/{name}; {script}"),
                stdin=text.encode(),
                env=env,
                mounts=tuple(mounts),
                cwd="/qh",
                network=network,
                collect=collect,
                keep=keep,
                keep_from=TARGET if keep is not None else "",
                limits=_LIMITS,
            )
        )

    def _failure(self, step: str, seen: Completed) -> LayerFailed | LayerUnavailable:
        log = _tail(seen)
        if seen.timed_out:
            return LayerUnavailable(
                f"dependencies did not {step} within {_LIMITS.wall_s:.0f} s",
                "a faster package index or host",
                log,
            )
        if seen.out_of_memory:
            return LayerUnavailable(
                f"dependencies needed more memory to {step} than a build sandbox may use",
                f"more than {_LIMITS.memory_bytes // MIB} MiB for builds",
                log,
            )
        if _mentions(seen, _UNREACHABLE) and not _mentions(seen, _AT_FAULT):
            return LayerUnavailable(
                "no package index reachable",
                "a package index (UV_DEFAULT_INDEX or PIP_INDEX_URL name another one)",
                log,
            )
        requirement = _at_fault(log, self._requirements)
        sentence = _sentence(log)
        verb = "do not resolve" if step == "resolve" else "do not install"
        return LayerFailed(f"the declared dependencies {verb}: {sentence}", log, requirement)


def _first_wrong(requirements: tuple[str, ...]) -> LayerFailed | None:
    for text in requirements:
        try:
            parsed = Requirement(text)
        except InvalidRequirement as error:
            return LayerFailed(f"{text!a} is no valid requirement: {error}", "", text)
        if parsed.url is not None:
            return LayerFailed(
                f"{text!a} names a place instead of a version; only the configured package "
                "index is a source",
                "",
                text,
            )
    return None


def _index_settings(environ: Mapping[str, str]) -> tuple[dict[str, str], tuple[Mount, ...]]:
    """Return what uv must know to reach the configured indexes, and what must be mounted."""
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


def _quoted(path: Path) -> str:
    return "'" + str(path).replace("'", "'\\''") + "'"


def _count(requirements: tuple[str, ...]) -> str:
    return f"{len(requirements)} requirement{'s' if len(requirements) != 1 else ''}"


def _file_digest(path: Path) -> str:
    """Return what stands for a program: its size and version-bearing name are not enough."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _mentions(seen: Completed, signs: tuple[str, ...]) -> bool:
    text = re.sub(r"\s+", " ", seen.stderr.decode(errors="replace").lower())
    return any(sign in text for sign in signs)


def _tail(seen: Completed) -> str:
    text = (seen.stdout + seen.stderr).decode(errors="replace").replace("\0", "")
    return text[-LOG_CHARACTERS:]


def _at_fault(log: str, requirements: tuple[str, ...]) -> str:
    """Return the declared requirement that uv's explanation names first."""
    named = {canonicalize_name(Requirement(text).name): text for text in requirements}
    for word in re.findall(r"[A-Za-z0-9][A-Za-z0-9._-]*", log):
        found = named.get(canonicalize_name(word.rstrip(".")))
        if found is not None:
            return found
    return ""


def _sentence(log: str) -> str:
    """Return uv's own explanation as one line, without its drawing."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", log)
    lines = [re.sub(r"^\W+|^error:\s*", "", line).strip() for line in text.splitlines()]
    useful = [line for line in lines if line and not line.startswith(("hint:", "warning:"))]
    return re.sub(r"\s+", " ", " ".join(useful))[:400] or "uv gave no reason"
