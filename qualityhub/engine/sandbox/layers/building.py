"""Wheels from source distributions: foreign code, without network and without anything of others.

A build sees its own source, the wheels its lock allows it as tools, and an interpreter. Of what it
leaves behind one file is taken: a wheel of that very package and version. It is kept under what
went into it, so that no build can stand in for another.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from qualityhub.engine.digest import digest_json
from qualityhub.engine.errors import MachineryError
from qualityhub.engine.sandbox import store
from qualityhub.engine.sandbox.layers.downloading import Downloads
from qualityhub.engine.sandbox.layers.model import (
    BUILDER_VERSION,
    IndexFile,
    LayerFailed,
    Package,
    Progress,
    StoppedError,
    same_name,
)
from qualityhub.engine.sandbox.layers.uv_failures import build_failed, not_built
from qualityhub.engine.sandbox.layers.workbench import UV, Workbench, log_of
from qualityhub.engine.sandbox.port import Mount

KIND = "built"
LARGEST_WHEEL = 4 * 1024**3
# The earliest time a zip archive can hold: wheels of equal content come out equal.
_EPOCH = "315532800"


@dataclass(frozen=True, slots=True)
class Built:
    """A wheel that we built.

    Attributes:
        path: The file.
        sha256: Of its content.
        metadata: Text of its METADATA.
    """

    path: Path
    sha256: str
    metadata: str


class Builds:
    """Builds wheels, or finds those that were built before from the very same."""

    def __init__(
        self,
        bench: Workbench,
        downloads: Downloads,
        requirements: tuple[str, ...],
        tell: Progress,
    ) -> None:
        self._bench = bench
        self._downloads = downloads
        self._requirements = requirements
        self._tell = tell
        self._pins: list[store.Pin] = []

    def wheel(self, package: Package) -> Built:
        """Return the wheel of a package that has only a source distribution.

        Raises:
            StoppedError: It does not build, or this host lacks what its build needs.
            MachineryError: The sandbox or our store failed.
        """
        source = package.source
        if source is None:
            raise MachineryError("layer.source", f"{package} has nothing to build")
        key = self._key(package, source)
        home = self._bench.home
        with store.locked(home, KIND, key):
            return self._kept(key) or self._build(package, source, key)

    def _kept(self, key: str) -> Built | None:
        found = store.lookup(self._bench.home, KIND, key)
        held = store.pin(found[0]) if found is not None else None
        if found is None or held is None:
            return None
        self._pins.append(held)
        folder, facts = found
        return Built(folder / facts["file"], facts["sha256"], facts["metadata"])

    def describe(self, path: Path) -> dict[str, str]:
        """Return what a distribution file says about itself, by the name of the text.

        Raises:
            ValueError: It cannot be read.
        """
        inside = f"/qh/file/{path.name}"
        seen = self._bench.make(
            (*self._bench.program("describe"), inside), mounts=(Mount(inside, path),)
        )
        if seen.exit_code != 0:
            raise ValueError("it cannot be read as an archive")
        texts = json.loads(seen.stdout)
        return {name: text for name, text in texts.items() if isinstance(text, str)}

    def _key(self, package: Package, source: IndexFile) -> str:
        return digest_json(
            "built-wheel",
            {
                **self._bench.target(),
                "source": [source.name, source.sha256],
                "tools": sorted([file.name, file.sha256] for file in package.tools),
                "uv": self._bench.uv_digest(),
                "builder": BUILDER_VERSION,
            },
        )

    def _build(self, package: Package, source: IndexFile, key: str) -> Built:
        paths = self._downloads.get((source, *package.tools))
        self._tell(f"building {package} from source, without network")
        home = self._bench.home
        with store.fresh(home, KIND) as place:
            seen = self._bench.make(
                (
                    *(UV, "build", "--wheel", "--no-index", "--find-links", "/qh/wheels"),
                    *("--python", str(self._bench.python.path)),
                    *("--no-create-gitignore", "--out-dir", "/qh/out", f"/qh/source/{source.name}"),
                ),
                env={"SOURCE_DATE_EPOCH": _EPOCH, "PYTHONHASHSEED": "0"},
                mounts=(
                    Mount("/qh/wheels", None, "scratch"),
                    Mount(f"/qh/source/{source.name}", paths[source]),
                    *wheel_mounts({file.name: paths[file] for file in package.tools}),
                ),
                keep=place,
                keep_from="/qh/out",
            )
            if seen.exit_code != 0:
                raise StoppedError(not_built(seen, package, self._requirements))
            wheel = _only_wheel(place, package)
            if wheel is None:
                raise StoppedError(
                    self._failed(package, "it builds no wheel of that name and version", seen)
                )
            clean = place.with_name("wheel")
            clean.mkdir(mode=0o755)
            shutil.copyfile(wheel, clean / wheel.name)
            (clean / wheel.name).chmod(0o644)
            with (clean / wheel.name).open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            try:
                metadata = self.describe(clean / wheel.name)["METADATA"]
            except (ValueError, KeyError):
                raise StoppedError(self._failed(package, "its wheel is broken", seen)) from None
            facts = {"file": wheel.name, "sha256": digest, "metadata": metadata}
            store.publish(home, KIND, key, clean, facts)
        built = self._kept(key)
        if built is None:
            raise MachineryError("layer.lost", f"the wheel of {package} was stored and is gone")
        return built

    def _failed(self, package: Package, why: str, seen: Any) -> LayerFailed:
        return build_failed(package, why, log_of(seen), self._requirements)


def wheel_mounts(files: Mapping[str, Path]) -> tuple[Mount, ...]:
    """Return mounts that show some wheels in the folder that uv is pointed to."""
    return tuple(Mount(f"/qh/wheels/{name}", path) for name, path in sorted(files.items()))


def _only_wheel(folder: Path, package: Package) -> Path | None:
    """Return the one wheel of a package in a folder that foreign code filled, else None."""
    fitting = []
    with os.scandir(folder) as entries:
        for entry in entries:
            seen = entry.stat(follow_symlinks=False)
            if not stat.S_ISREG(seen.st_mode) or seen.st_size > LARGEST_WHEEL:
                continue
            try:
                name, version, _, _ = parse_wheel_filename(entry.name)
            except InvalidWheelFilename:
                continue
            if same_name(name, package.name) and str(version) == package.version:
                fitting.append(Path(entry.path))
    return fitting[0] if len(fitting) == 1 else None
