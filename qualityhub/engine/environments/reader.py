"""Read one source as one environment: which format, which files, what is wrong with it."""

from __future__ import annotations

import json
import re
import stat
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from qualityhub.engine.environments.files import (
    DEFAULT_LIMITS,
    ReadLimits,
    not_found,
    shown,
    special_file,
)
from qualityhub.engine.environments.formats import FORMATS, NAMED_FORMATS, format_named
from qualityhub.engine.environments.package import Package
from qualityhub.engine.environments.rows import first_problem
from qualityhub.engine.errors import InvalidInputError, UnreadablePackageError

if TYPE_CHECKING:
    from qualityhub.engine.environments.model import Environment
    from qualityhub.engine.environments.package import Format

_SCHEME = re.compile(r"(?P<scheme>[a-z][a-z0-9+-]{2,30}):(?P<name>.*)", re.DOTALL)
_PLANNED = frozenset({"pettingzoo", "pypi"})
_SUPPORTED = (
    "Supported are a file or folder, path/to/file.py:ClassName, gymnasium:ID and "
    "reasoning-gym:NAME."
)
_ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.zst")


def read_environment(
    source: str,
    *,
    adapter: str | None = None,
    domain: str | None = None,
    base: Path | None = None,
    limits: ReadLimits = DEFAULT_LIMITS,
) -> Environment:
    """Return the environment that a source is.

    Nothing of it is imported or run; files are parsed as data.

    Args:
        source: A file or folder, ``path/to/file.py:ClassName``, ``gymnasium:ID`` or
            ``reasoning-gym:NAME``; names may carry options: ``reasoning-gym:gcd?size=20``.
        adapter: Format to read it as; None detects it by content.
        domain: Overrides the domain that the owner declared.
        base: Folder that relative paths start from; the working directory by default.
        limits: How much is read.

    Raises:
        UnreadablePackageError: The files do not form one environment in one known format; codes
            ``package.*``, the message names file and line, the hint the fix.
        InvalidInputError: The source, or the adapter, is none that there is.
    """
    environment = _read(source, adapter, base or Path(), limits)
    return environment if domain is None else replace(environment, domain=domain)


def _read(source: str, adapter: str | None, base: Path, limits: ReadLimits) -> Environment:
    match = _SCHEME.fullmatch(source)
    if match and match["scheme"] in NAMED_FORMATS:
        scheme = match["scheme"]
        if adapter not in {None, scheme}:
            raise InvalidInputError(
                "input.unknown_adapter",
                f"{shown(source)} is always read by the adapter {scheme}.",
                "Leave --adapter out.",
            )
        name, _, query = match["name"].partition("?")
        return NAMED_FORMATS[scheme].read_named(name, _options(query))
    if match and match["scheme"] in _PLANNED:
        raise InvalidInputError(
            "input.unsupported_source", f"{match['scheme']}: is not supported yet.", _SUPPORTED
        )
    package = _open(source, base, limits)
    wanted = adapter or package.manifest.text("adapter")
    if wanted:
        return format_named(wanted).read(package)
    return _detect(package).read(package)


def _open(source: str, base: Path, limits: ReadLimits) -> Package:
    place, target = source, ""
    if ".py:" in source and not _mode(base, source):
        place, _, target = source.rpartition(":")
        if not target.isidentifier():
            raise InvalidInputError(
                "input.bad_name",
                f"{shown(target)!r} is no class name.",
                "Write path/to/file.py:ClassName.",
            )
    mode = _mode(base, place)
    if mode is None:
        raise UnreadablePackageError(
            "package.not_found", f"There is no file or folder {shown(place)}.", _SUPPORTED
        )
    path = base / place
    if stat.S_ISDIR(mode):
        package = Package(path, limits=limits)
        return _only_folder(package) or package
    if not stat.S_ISREG(mode):
        raise special_file(place)
    if target and path.suffix != ".py":
        raise not_found(place)
    if path.name == "task.toml":
        return Package(path.parent, limits=limits)
    return Package(path.parent, only=path.name, target=target, limits=limits)


def _mode(base: Path, place: str) -> int | None:
    """Return the file mode of a path, or None where there is nothing."""
    try:
        return (base / place).stat().st_mode if place else None
    except (OSError, ValueError):
        return None


def _only_folder(package: Package) -> Package | None:
    """Return the one folder that an archive wrapped around the package."""
    tops = {entry.path.split("/")[0] for entry in package.entries}
    if len(tops) != 1 or package.manifest.present or any(_evidence(package).values()):
        return None
    inner = package.root / tops.pop()
    return Package(inner, limits=package.limits) if inner.is_dir() else None


def _evidence(package: Package) -> dict[str, str | None]:
    return {item.NAME: item.detect(package) for item in FORMATS}


def _detect(package: Package) -> Format:
    found = {name: seen for name, seen in _evidence(package).items() if seen}
    if len(found) == 1:
        return format_named(next(iter(found)))
    if found:
        seen = "; ".join(f"{name}: {shown(evidence)}" for name, evidence in found.items())
        raise UnreadablePackageError(
            "package.ambiguous",
            f"{shown(package.name)} could be read in {len(found)} ways: {seen}.",
            f"Move one out, or name the meant one: --adapter {' or --adapter '.join(found)}.",
        )
    raise _unknown(package)


def _unknown(package: Package) -> UnreadablePackageError:
    name = shown(package.only or package.name)
    hint = (
        "Known are rows with task_id, prompt, entry_point, canonical_solution and test; scorer.py "
        "beside rows with prompt and answer; task.toml folders; file.py:ClassName."
    )
    if not package.only and not package.entries:
        return UnreadablePackageError("package.empty", f"The folder {name} has no files.", hint)
    if package.only.lower().endswith(_ARCHIVES):
        hint = "Unpack the archive and give the folder."
    elif package.only.endswith(".py"):
        return UnreadablePackageError(
            "package.missing_entry",
            f"{name} defines no class with reset and step.",
            f"Name the class: {name}:ClassName.",
        )
    elif package.row_files and not package.first_rows:
        return first_problem(package.root, package.row_files, package.limits) or (
            UnreadablePackageError(
                "package.empty",
                f"{shown(', '.join(package.row_files))} has no row.",
                "Write one JSON object per line.",
            )
        )
    elif package.first_rows:
        file, row = next(iter(package.first_rows.items()))
        keys = ", ".join(shown(key) for key in list(row)[:12])
        return UnreadablePackageError(
            "package.unknown_format", f"{shown(file)} has rows with other keys: {keys}.", hint
        )
    return UnreadablePackageError(
        "package.unknown_format", f"{name} is in no format that is known here.", hint
    )


def _options(query: str) -> dict[str, Any]:
    """Return the options after ``?``: JSON values where they parse as such, else text."""
    options: dict[str, Any] = {}
    for key, text in parse_qsl(query, keep_blank_values=True):
        if not key.isidentifier() or key in options:
            raise InvalidInputError(
                "input.bad_name",
                f"The option {shown(key)!r} is no name, or is given twice.",
                "Write options as ?size=20&seed=42.",
            )
        try:
            options[key] = json.loads(text, parse_constant=_no_constant)
        except (ValueError, RecursionError):
            options[key] = text
    return options


def _no_constant(name: str) -> Any:
    raise ValueError(name)
