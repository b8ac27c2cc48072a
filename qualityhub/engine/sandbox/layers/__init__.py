"""Dependency layers: a virtual environment by uv, made once, named by its lock, mounted read-only.

Two kinds of steps, each in a build sandbox of its own. *Fetching* has the network and runs uv's
resolver and a downloader of ours, never a line of a package. *Making* builds source distributions
and installs wheels; it runs foreign code and has no network, no index and no cache of another.

What is enforced while fetching: the sandbox shares the host's network, so the kernel stops no
connection. What connects is only uv, which reads the configured indexes and what their pages link
to, and our downloader, which follows the lock to HTTP and HTTPS (or below a configured folder)
alone. Requirements that name a place are refused, declared ones by us and those of dependencies by
uv; whatever comes is checked against the hash in the lock.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from qualityhub.engine.digest import digest_json
from qualityhub.engine.errors import MachineryError
from qualityhub.engine.sandbox import store
from qualityhub.engine.sandbox.interpreters import Interpreter
from qualityhub.engine.sandbox.layers.building import Builds, wheel_mounts
from qualityhub.engine.sandbox.layers.downloading import Downloads
from qualityhub.engine.sandbox.layers.model import (
    BUILDER_VERSION,
    LOG_CHARACTERS,
    TARGET,
    LayerFailed,
    LayerUnavailable,
    Lock,
    Progress,
    StoppedError,
    lock_from_json,
)
from qualityhub.engine.sandbox.layers.resolving import Resolver
from qualityhub.engine.sandbox.layers.uv_failures import not_installed
from qualityhub.engine.sandbox.layers.workbench import UV, Workbench, log_of, quoted
from qualityhub.engine.sandbox.port import Mount, Sandbox

__all__ = ["TARGET", "Layer", "LayerFailed", "LayerUnavailable", "build_layer", "locate_layer"]


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer that is ready to mount at :data:`TARGET`.

    Attributes:
        path: Host folder.
        digest: Over requirements, lock, interpreter, platform, uv and builder version.
        identity: The same without where the interpreter lies on this host; goes into trial keys.
        lock: ``name==version``, sorted.
        log: Tail of uv's output.
    """

    path: Path
    digest: str
    identity: str
    lock: tuple[str, ...]
    log: str


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
    wrong = _first_wrong(requirements)
    if wrong is not None:
        return wrong
    maker = _Maker(
        tuple(sorted(set(requirements))),
        Workbench(python, home, sandbox),
        on_progress or (lambda _: None),
    )
    try:
        with store.locked(home, "layers", maker.question):
            lock = maker.lock(refresh=refresh)
            return locate_layer(maker.digest(lock), home) or maker.install(lock)
    except StoppedError as stopped:
        return stopped.outcome


def locate_layer(digest: str, home: Path) -> Layer | None:
    """Return a layer that is already there, or None."""
    found = store.lookup(home, "layers", digest)
    if found is None:
        return None
    path, facts = found
    return Layer(path, digest, facts["identity"], tuple(facts["lock"]), facts["log"])


class _Maker:
    """Makes the layer of one set of requirements."""

    def __init__(self, requirements: tuple[str, ...], bench: Workbench, tell: Progress) -> None:
        self._requirements = requirements
        self._bench = bench
        self._tell = tell
        self._downloads = Downloads(bench, tell)
        self._builds = Builds(bench, self._downloads, requirements, tell)
        self.question = digest_json(
            "layer-question",
            {
                "requirements": list(requirements),
                **bench.target(),
                "index": bench.index_digest(),
            },
        )

    def digest(self, lock: Lock) -> str:
        """Return the name of the layer that a lock leads to; its content knows the prefix."""
        return digest_json("layer", [self.identity(lock), str(self._bench.python.prefix)])

    def identity(self, lock: Lock) -> str:
        """Return what the layer means on any host."""
        return digest_json(
            "layer-identity",
            {
                "requirements": list(self._requirements),
                "lock": lock.meaning(),
                **self._bench.target(),
                "uv": self._bench.uv_digest(),
                "builder": BUILDER_VERSION,
            },
        )

    def lock(self, *, refresh: bool) -> Lock:
        """Return the stored lock, or resolve."""
        if not self._requirements:
            return Lock((), "")
        path = self._bench.home / "resolved" / f"{store.short(self.question)}.json"
        kept = None if refresh else lock_from_json(store.read_json(path) or {})
        if kept is not None:
            return kept
        count = len(self._requirements)
        self._tell(f"resolving {count} requirement{'s' if count != 1 else ''}")
        lock = Resolver(
            self._bench, self._downloads, self._builds, self._requirements, self._tell
        ).resolve()
        store.write_json(path, lock.as_json())
        return lock

    def install(self, lock: Lock) -> Layer:
        """Make the virtual environment from what was downloaded and built, and publish it."""
        wheels, hashes = self._wheels(lock)
        script = f"set -e; {UV} venv --quiet --python {quoted(self._bench.python.path)} {TARGET}"
        if lock.packages:
            self._tell(f"installing {len(lock.packages)} packages")
            # Compiling starts the new interpreter, and a .pth file may run code in it.
            script += (
                f"; exec {UV} pip install --quiet --python {TARGET}/bin/python --no-deps "
                "--no-build --no-index --find-links /qh/wheels "
                "--require-hashes --compile-bytecode -r -"
            )
        digest, home = self.digest(lock), self._bench.home
        with store.fresh(home, "layers") as place:
            seen = self._bench.make(
                ("/bin/sh", "-c", script),
                stdin=hashes.encode(),
                env={"PYC_INVALIDATION_MODE": "UNCHECKED_HASH"},
                mounts=(Mount("/qh/wheels", None, "scratch"), *wheel_mounts(wheels)),
                keep=place,
                keep_from=TARGET,
            )
            if seen.exit_code != 0:
                raise StoppedError(not_installed(seen, self._requirements))
            if not place.is_dir():
                raise MachineryError("layer.lost", "a finished layer did not come back")
            log = (lock.log + log_of(seen))[-LOG_CHARACTERS:]
            identity = self.identity(lock)
            path = store.publish(
                home,
                "layers",
                digest,
                place,
                {
                    "identity": identity,
                    "lock": list(lock.names),
                    "log": log,
                    "python": self._bench.python.version,
                    "requirements": list(self._requirements),
                },
            )
        return Layer(path, digest, identity, lock.names, log)

    def _wheels(self, lock: Lock) -> tuple[dict[str, Path], str]:
        """Return the wheels of a lock by name, and what uv must install with which hashes."""
        paths = self._downloads.get(file for item in lock.packages for file in item.wheels)
        files = {file.name: path for file, path in paths.items()}
        lines = []
        for item in lock.packages:
            hashes = [file.sha256 for file in item.wheels]
            if item.source is not None:
                built = self._builds.wheel(item)
                files[built.path.name] = built.path
                hashes = [built.sha256]
            words = " ".join(f"--hash=sha256:{digest}" for digest in hashes)
            lines.append(f"{item.name}=={item.version} {words}\n")
        return files, "".join(lines)


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
