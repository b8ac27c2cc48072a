"""From requirements to a lock: uv with network, which is never allowed to build anything.

Where a package has no wheel for this platform, uv is given what its source distribution says about
itself: its own static metadata, or else that of the wheel which was built from it without network.
Until that is known it counts as needing nothing, so uv itself picks the version; then the answer
is asked again, until nothing new has to be known.
"""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from packaging.metadata import parse_email
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

from qualityhub.engine.errors import MachineryError
from qualityhub.engine.sandbox.layers.building import Builds
from qualityhub.engine.sandbox.layers.downloading import Downloads
from qualityhub.engine.sandbox.layers.model import (
    IndexFile,
    LayerFailed,
    Lock,
    Package,
    Progress,
    StoppedError,
    same_name,
)
from qualityhub.engine.sandbox.layers.uv_failures import (
    build_failed,
    not_resolved,
    sources_wanted,
)
from qualityhub.engine.sandbox.layers.workbench import UV, Workbench, log_of
from qualityhub.engine.sandbox.port import Completed

ROUNDS = 60
"""Resolutions before we give up: one per package without a wheel, one per version looked into."""

_LOCKFILE = "/qh/pylock.toml"
_COMPILE = (
    'printf %s "$QH_CONFIG" >/qh/uv.toml; unset QH_CONFIG; cat >/qh/requirements.in; exec "$@"'
)
_STATIC_SINCE = (2, 2)
_MATTERS = {"requires-dist", "requires-python", "provides-extra"}


@dataclass(frozen=True, slots=True)
class _Known:
    """What a source distribution needs: to run, and to be built."""

    requires: tuple[str, ...]
    requires_python: str
    extras: tuple[str, ...]
    tools: tuple[IndexFile, ...]


class Resolver:
    """Resolves the requirements of one layer."""

    def __init__(
        self,
        bench: Workbench,
        downloads: Downloads,
        builds: Builds,
        requirements: tuple[str, ...],
        tell: Progress,
    ) -> None:
        self._bench = bench
        self._downloads = downloads
        self._builds = builds
        self._requirements = requirements
        self._tell = tell
        self._known: dict[tuple[str, str], _Known] = {}

    def resolve(self) -> Lock:
        """Return the lock.

        Raises:
            StoppedError: There is none, or the index does not answer.
            MachineryError: The sandbox or our store failed.
        """
        sourced: dict[str, None] = {}
        for _ in range(ROUNDS):
            seen = self._compile(self._requirements, tuple(sourced))
            if seen.exit_code != 0:
                new = [name for name in sources_wanted(seen) if name not in sourced]
                if not new:
                    raise StoppedError(not_resolved(seen, self._requirements))
                self._tell(f"no wheel of {', '.join(new)} here: looking at the source")
                sourced |= dict.fromkeys(new)
                continue
            packages = self._packages(seen)
            unknown = [
                item
                for item in packages
                if item.source is not None and (item.name, item.version) not in self._known
            ]
            if not unknown:
                return Lock(tuple(map(self._with_tools, packages)), log_of(seen))
            for item in unknown:
                self._known[item.name, item.version] = self._look_into(item)
        raise StoppedError(
            LayerFailed(
                "the declared dependencies do not resolve: too many of their packages have no "
                f"wheel for this platform ({', '.join(sourced)})"
            )
        )

    def _compile(self, requirements: tuple[str, ...], sourced: tuple[str, ...]) -> Completed:
        # Builds are off for every package, and for those whose source is allowed uv knows all it
        # could learn from a build: it has no reason left to start one.
        options = ["--only-binary", ":all:"]
        for name in sourced:
            options += ["--no-binary", name]
        argv = (
            *("/bin/sh", "-c", _COMPILE, "sh", UV, "pip", "compile", "--quiet"),
            *("--python", str(self._bench.python.path), "--config-file", "/qh/uv.toml"),
            *("--no-header", "--no-annotate", "--format", "pylock.toml", *options),
            *("-o", _LOCKFILE, "/qh/requirements.in"),
        )
        return self._bench.fetch(
            argv,
            stdin="".join(f"{line}\n" for line in requirements).encode(),
            env={"QH_CONFIG": self._config(sourced)},
            collect=(_LOCKFILE,),
        )

    def _config(self, sourced: tuple[str, ...]) -> str:
        rows: list[dict[str, Any]] = [{"name": name, "requires-dist": []} for name in sourced]
        for (name, version), known in self._known.items():
            row = {
                "name": name,
                "version": version,
                "requires-dist": list(known.requires),
                "provides-extra": list(known.extras),
            }
            if known.requires_python:
                row["requires-python"] = known.requires_python
            rows.append(row)
        # Strings and lists of strings are the same in JSON as in TOML.
        return "".join(
            "[[dependency-metadata]]\n"
            + "".join(f"{key} = {json.dumps(value)}\n" for key, value in row.items())
            for row in rows
        )

    def _packages(self, seen: Completed) -> list[Package]:
        try:
            document = tomllib.loads(seen.collected[_LOCKFILE].decode())
            packages = [_package(row) for row in document.get("packages", [])]
        except (KeyError, ValueError, TypeError) as error:
            raise MachineryError("layer.lock", f"uv wrote no lock that we read: {error}") from error
        foreign = next((row for row in packages if isinstance(row, str)), None)
        if foreign is not None:
            raise StoppedError(
                LayerFailed(
                    f"the declared dependencies do not resolve: {foreign} would come from "
                    "somewhere else than the configured package index",
                    log_of(seen),
                )
            )
        good = [row for row in packages if isinstance(row, Package)]
        hashed = self._downloads.hashed(
            file
            for row in good
            for file in (*row.wheels, *([row.source] if row.source is not None else []))
        )
        return [
            replace(
                row,
                wheels=tuple(hashed[file] for file in row.wheels),
                source=hashed[row.source] if row.source is not None else None,
            )
            for row in good
        ]

    def _with_tools(self, package: Package) -> Package:
        if package.source is None:
            return package
        return replace(package, tools=self._known[package.name, package.version].tools)

    def _look_into(self, package: Package) -> _Known:
        source = package.source
        if source is None:
            raise MachineryError("layer.source", f"{package} has nothing to look into")
        path = self._downloads.get([source])[source]
        try:
            texts = self._builds.describe(path)
            asked = _build_requirements(texts.get("pyproject.toml", ""))
        except ValueError as error:
            raise self._failed(package, str(error)) from error
        tools = self._tools(package, asked)
        known = _static(texts.get("PKG-INFO", ""), package)
        if known is None:
            built = self._builds.wheel(replace(package, tools=tools))
            known = _read(built.metadata)
        if known is None:
            raise self._failed(package, "its metadata is broken")
        return replace(known, tools=tools)

    def _tools(self, package: Package, asked: tuple[str, ...]) -> tuple[IndexFile, ...]:
        """Return the wheels that a build may use, resolved like anything else, but wheels only."""
        if not asked:
            return ()
        seen = self._compile(asked, ())
        if seen.exit_code != 0:
            outcome = not_resolved(seen, asked)
            if isinstance(outcome, LayerFailed):
                words = outcome.reason.partition(": ")[2]
                raise self._failed(package, f"what its build needs cannot be had: {words}")
            raise StoppedError(outcome)
        return tuple(file for item in self._packages(seen) for file in item.wheels)

    def _failed(self, package: Package, why: str) -> StoppedError:
        return StoppedError(build_failed(package, why, "", self._requirements))


def _package(row: dict[str, Any]) -> Package | str:
    """Return a package of uv's lock, or the name of one that comes from no index."""
    name = canonicalize_name(row["name"])
    if any(kind in row for kind in ("vcs", "directory", "archive")) or "version" not in row:
        return str(name)
    version = str(Version(row["version"]))
    wheels = tuple(_file(entry) for entry in row.get("wheels", []))
    for file in wheels:
        if not _is_of(file, name, version):
            raise ValueError(f"{file.name} is no wheel of {name} {version}")
    if wheels:
        return Package(name, version, wheels)
    source = _file(row["sdist"])
    if not _is_of(source, name, version):
        raise ValueError(f"{source.name} is no source distribution of {name} {version}")
    return Package(name, version, source=source)


def _file(entry: dict[str, Any]) -> IndexFile:
    url = str(entry["url"])
    name = str(entry.get("name") or unquote(PurePosixPath(urlsplit(url).path).name))
    if "/" in name or name in {"", ".", ".."}:
        raise ValueError(f"{name!a} is no file name")
    return IndexFile(name, url, str(entry.get("hashes", {}).get("sha256", "")).lower())


def _is_of(file: IndexFile, name: str, version: str) -> bool:
    try:
        if file.name.endswith(".whl"):
            found, seen, _, _ = parse_wheel_filename(file.name)
        else:
            found, seen = parse_sdist_filename(file.name)
    except InvalidWheelFilename:
        return False
    except InvalidSdistFilename:
        # Old archives with other endings: uv itself knows which package they are.
        return True
    return same_name(found, name) and str(seen) == version


def _build_requirements(pyproject: str) -> tuple[str, ...]:
    """Return what a source distribution declares to need for its build.

    Raises:
        ValueError: The declaration is broken, or names a place instead of a version.
    """
    try:
        document = tomllib.loads(pyproject)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ValueError("its pyproject.toml is broken") from error
    table = document.get("build-system")
    if not isinstance(table, dict):
        return ("setuptools>=40.8.0", "wheel")
    rows = table.get("requires", [])
    if not isinstance(rows, list) or not all(isinstance(row, str) for row in rows):
        raise ValueError("its pyproject.toml declares no list of build requirements")
    for row in rows:
        try:
            if Requirement(row).url is not None:
                raise ValueError(f"its build requirement {row!a} names a place, not a version")
        except InvalidRequirement as error:
            raise ValueError(f"its build requirement {row!a} is none") from error
    backend = str(table.get("build-backend", "setuptools"))
    old = ("setuptools", "wheel") if backend.startswith("setuptools") else ()
    return (*rows, *(name for name in old if not any(_names(row, name) for row in rows)))


def _names(requirement: str, name: str) -> bool:
    return same_name(Requirement(requirement).name, name)


def _static(text: str, package: Package) -> _Known | None:
    """Return what a source distribution promises about every wheel built from it, if it does."""
    raw, _ = parse_email(text)
    try:
        since = tuple(int(part) for part in raw.get("metadata_version", "0").split("."))
        same = str(Version(raw.get("version", "0"))) == package.version
    except (ValueError, InvalidVersion):
        return None
    dynamic = {field.lower() for field in raw.get("dynamic", [])}
    if since < _STATIC_SINCE or dynamic & _MATTERS or not same:
        return None
    return _read(text) if same_name(raw.get("name", ""), package.name) else None


def _read(text: str) -> _Known | None:
    """Return what metadata says is needed, or None where a part of it is not understood."""
    raw, unparsed = parse_email(text)
    if _MATTERS & set(unparsed):
        return None
    try:
        requires = tuple(str(Requirement(row)) for row in raw.get("requires_dist", []))
    except InvalidRequirement:
        return None
    extras = tuple(raw.get("provides_extra", []))
    return _Known(requires, raw.get("requires_python", ""), extras, ())
