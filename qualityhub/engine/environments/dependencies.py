"""Find what an environment says it needs: manifest, PEP 723 block, pyproject, requirements files.

The manifest is the whole declaration where it makes one; else a PEP 723 block in the entry file;
else ``pyproject.toml`` and requirements files beside the entry together.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from qualityhub.engine.environments.files import (
    MANIFEST,
    link_escape,
    read_text,
    shown,
    too_large,
)
from qualityhub.engine.environments.model import Dependencies, Problem
from qualityhub.engine.environments.problems import NOT_FOLLOWED
from qualityhub.engine.environments.tables import TEXT, TEXTS, parse_toml, read_toml, wrong_type
from qualityhub.engine.errors import UnreadablePackageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from qualityhub.engine.environments.manifest import Manifest

_INCLUDE = re.compile(r"^(?:-r|--requirement)[\s=]*(?P<file>\S.*)$")
_HASH = re.compile(r"\s--(?:hash|config-settings?|global-option)[=\s]\S+")
_COMMENT = re.compile(r"(^|\s)#.*$")
_MAX_FILES = 32
_MAX_REQUIREMENTS = 5_000


class Declared:
    """Collects requirements, where they stand, and what could not be followed."""

    def __init__(self) -> None:
        self.requirements: list[str] = []
        self.sources: list[str] = []
        self.python: str | None = None
        self.problems: list[Problem] = []

    def add(self, requirement: str, place: str) -> None:
        """Add one PEP 508 requirement.

        Raises:
            UnreadablePackageError: ``package.bad_requirement``.
        """
        try:
            Requirement(requirement)
        except (InvalidRequirement, RecursionError) as error:
            raise UnreadablePackageError(
                "package.bad_requirement",
                f"{shown(place)}: {shown(requirement)!r} is no requirement.",
                "Write NAME, NAME==1.2.3 or NAME>=1.2, with [extras] and ; markers where needed.",
            ) from error
        if requirement not in self.requirements:
            self.requirements.append(requirement)
        if len(self.requirements) > _MAX_REQUIREMENTS:
            raise too_large(f"{shown(place)} passes {_MAX_REQUIREMENTS:,} requirements.")

    def needs_python(self, specifier: str, place: str) -> None:
        """Note the interpreter; the first place that names one wins.

        Raises:
            UnreadablePackageError: ``package.bad_requirement``.
        """
        try:
            SpecifierSet(specifier)
        except InvalidSpecifier as error:
            raise UnreadablePackageError(
                "package.bad_requirement",
                f"{shown(place)}: {shown(specifier)!r} is no version specifier.",
                'Write for example ">=3.11" or "==3.12.*".',
            ) from error
        if self.python is None:
            self.python = specifier

    def done(self) -> Dependencies:
        """Return what was collected."""
        return Dependencies(tuple(self.requirements), tuple(self.sources), self.python)


def read_dependencies(
    root: Path, manifest: Manifest, *, entry: str = "", beside: str = ""
) -> tuple[Dependencies, tuple[Problem, ...]]:
    """Return the declared dependencies and what of the declaration is not followed.

    Args:
        root: Folder of the package.
        manifest: The owner's manifest.
        entry: Python file that may carry a PEP 723 block; empty where there is none.
        beside: Folder, relative to root, whose pyproject and requirements files count.

    Raises:
        UnreadablePackageError: A declaration that cannot be read.
    """
    declared = Declared()
    if python := manifest.text("python"):
        declared.needs_python(python, MANIFEST)
    if "dependencies" in manifest.environment:
        declared.sources.append(MANIFEST)
        for requirement in manifest.environment["dependencies"]:
            declared.add(requirement, MANIFEST)
    elif "requirements" in manifest.environment:
        named = manifest.environment["requirements"]
        for file in [named] if isinstance(named, str) else named:
            _read_requirements(root, file, declared)
    elif not (entry and _read_block(root, entry, declared)):
        _read_pyproject(root, beside, declared)
        for file in _requirements_files(root / beside):
            _read_requirements(root, str(PurePosixPath(beside) / file), declared)
    return declared.done(), tuple(declared.problems)


def _read_block(root: Path, entry: str, declared: Declared) -> bool:
    blocks = list(_script_blocks(read_text(root, entry)))
    if not blocks:
        return False
    place = f"{entry} (PEP 723)"
    if len(blocks) > 1:
        raise UnreadablePackageError(
            "package.contradiction",
            f"{shown(entry)} has {len(blocks)} script metadata blocks.",
            "Keep one of them.",
        )
    table = parse_toml(blocks[0], place)
    _add_list(table, "dependencies", place, declared)
    _add_python(table, place, declared)
    declared.sources.append(place)
    return True


def _script_blocks(source: str) -> Iterator[str]:
    """Yield the TOML of each script block, which ends at the last ``# ///`` of its comment."""
    lines = iter(source.splitlines())
    for line in lines:
        if line != "# /// script":
            continue
        block: list[str] = []
        end: int | None = None
        for inner in lines:
            if inner != "#" and not inner.startswith("# "):
                break
            if inner == "# ///":
                end = len(block)
            block.append(inner[2:])
        if end is not None:
            yield "\n".join(block[:end])


def _read_pyproject(root: Path, beside: str, declared: Declared) -> None:
    relative = str(PurePosixPath(beside) / "pyproject.toml")
    if not (root / relative).is_file():
        return
    project = read_toml(root, relative).get("project")
    if project is None:
        return
    if not isinstance(project, dict):
        raise wrong_type(relative, "project", "a table")
    if "dependencies" in project:
        _add_list(project, "dependencies", relative, declared)
        declared.sources.append(relative)
    _add_python(project, relative, declared)


def _add_list(table: Mapping[str, Any], key: str, place: str, declared: Declared) -> None:
    value = table.get(key, [])
    if not TEXTS.fits(value):
        raise wrong_type(place, key, TEXTS.says)
    for requirement in value:
        declared.add(requirement, place)


def _add_python(table: Mapping[str, Any], place: str, declared: Declared) -> None:
    value = table.get("requires-python")
    if value is None:
        return
    if not TEXT.fits(value):
        raise wrong_type(place, "requires-python", TEXT.says)
    declared.needs_python(value, place)


def _requirements_files(folder: Path) -> list[str]:
    if (folder / "requirements.txt").is_file():
        return ["requirements.txt"]
    return sorted(item.name for item in folder.glob("requirements*.txt") if item.is_file())


def _read_requirements(root: Path, first: str, declared: Declared) -> None:
    waiting, seen = [first], set[str]()
    while waiting:
        file = _inside(waiting.pop(0))
        if file in seen:
            continue
        seen.add(file)
        if len(seen) > _MAX_FILES:
            raise too_large(f"{shown(first)} includes more than {_MAX_FILES} files.")
        declared.sources.append(file)
        for number, line in _logical_lines(read_text(root, file)):
            place = f"{file}:{number}"
            include = _INCLUDE.match(line)
            if include:
                waiting.append(str(PurePosixPath(file).parent / include["file"]))
            elif line.startswith("-") or _is_path(line):
                declared.problems.append(
                    Problem(
                        NOT_FOLLOWED,
                        f"The line {shown(line)!r} is not followed: requirements come by name "
                        "from the configured index.",
                        place,
                        ground=f"requirements option {line.split('=')[0].split()[0]}"
                        if line.startswith("-")
                        else "requirement by path",
                    )
                )
            else:
                declared.add(_HASH.sub("", line).strip(), place)


def _logical_lines(text: str) -> list[tuple[int, str]]:
    result: list[tuple[int, str]] = []
    joined, start = "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        start = start or number
        if raw.endswith("\\") and not raw.lstrip().startswith("#"):
            joined += raw[:-1] + " "
            continue
        line = _COMMENT.sub("", joined + raw).strip()
        if line:
            result.append((start, line))
        joined, start = "", 0
    if joined.strip():
        result.append((start, _COMMENT.sub("", joined).strip()))
    return result


def _is_path(line: str) -> bool:
    return line.startswith((".", "/", "git+", "http:", "https:", "file:")) and " @ " not in line


def _inside(file: str) -> str:
    """Return a path relative to the root without ``..``; it may not climb above the root."""
    parts: list[str] = []
    for part in PurePosixPath(file).parts:
        if part == "..":
            if not parts:
                raise link_escape(file)
            parts.pop()
        elif part == "/":
            raise link_escape(file)
        else:
            parts.append(part)
    return "/".join(parts)
