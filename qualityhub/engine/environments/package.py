"""A package before a format has read it: root, entries, manifest, and what was asked for."""

from __future__ import annotations

import re
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Protocol

from qualityhub.engine.digest import digest_environment, digest_json, digest_task, digest_tree
from qualityhub.engine.environments.dependencies import read_dependencies
from qualityhub.engine.environments.files import (
    DEFAULT_LIMITS,
    ReadLimits,
    entry_of,
    read_bytes,
    read_text,
    walk,
)
from qualityhub.engine.environments.manifest import Manifest, read_manifest
from qualityhub.engine.environments.model import (
    Dependencies,
    Environment,
    Family,
    FileEntry,
    Problem,
    RewardSpec,
    Task,
)
from qualityhub.engine.environments.problems import NAME_CLASH
from qualityhub.engine.environments.rows import first_row

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_DOCUMENTATION = re.compile(
    r"(readme|license|licence|copying|notice|authors|changelog|changes|contributing|citation)"
    r"[\w-]*(\.(md|rst|txt|cff))?",
    re.IGNORECASE,
)
_DECLARATION = re.compile(r"requirements[^/]*\.txt|pyproject\.toml")
ROW_FILES = (".jsonl", ".jsonl.gz")
_MAX_TASK_ID = 200


class Package:
    """One folder, or one file of it, that a format is asked to read.

    Attributes:
        root: Folder; resolved.
        only: Relative path of the one file that SOURCE named, empty for a folder.
        target: What followed the colon of ``file.py:ClassName``.
        manifest: The owner's manifest beside it.
        limits: How much is read.
    """

    def __init__(
        self, root: Path, *, only: str = "", target: str = "", limits: ReadLimits = DEFAULT_LIMITS
    ) -> None:
        self.root = root.resolve()
        self.only = only
        self.target = target
        self.limits = limits
        self.manifest: Manifest = read_manifest(self.root)

    @cached_property
    def entries(self) -> tuple[FileEntry, ...]:
        """Every entry of the tree; hashed on first use."""
        return walk(self.root, self.limits)

    @cached_property
    def row_files(self) -> tuple[str, ...]:
        """Relative paths of the files that may hold rows: the one named, or those at the root.

        A list in a ``.json`` file counts only where it is named: folders have other such files.
        """
        if self.only:
            return (self.only,) if self.only.lower().endswith((*ROW_FILES, ".json")) else ()
        return tuple(
            sorted(
                entry.path
                for entry in self.entries
                if "/" not in entry.path and entry.path.lower().endswith(ROW_FILES)
            )
        )

    @cached_property
    def first_rows(self) -> dict[str, dict[str, Any]]:
        """The first row of each file that starts with one."""
        found = {file: first_row(self.root, file, self.limits) for file in self.row_files}
        return {file: row for file, row in found.items() if row is not None}

    def has(self, path: str) -> bool:
        """Say whether the tree has a file (or a link inside it) of this name."""
        return any(entry.path == path for entry in self.entries)

    def below(self, folder: str) -> list[FileEntry]:
        """Return the entries below a folder, with their paths relative to it."""
        prefix = folder.rstrip("/") + "/" if folder else ""
        return [
            FileEntry(
                entry.path[len(prefix) :],
                entry.kind,
                entry.mode,
                entry.size,
                entry.sha256,
                entry.target,
            )
            for entry in self.entries
            if entry.path.startswith(prefix)
        ]

    def one(self, path: str) -> FileEntry:
        """Return the entry of one file without walking the tree."""
        return entry_of(self.root, path, self.limits)

    def text(self, path: str) -> str:
        """Return a text file of the tree."""
        return read_text(self.root, path, self.limits.source_bytes)

    def dependencies(self, entry: str = "") -> tuple[Dependencies, tuple[Problem, ...]]:
        """Return what the manifest, the entry and the files beside it declare."""
        beside = str(PurePosixPath(entry).parent) if entry else ""
        return read_dependencies(
            self.root, self.manifest, entry=entry, beside="" if beside == "." else beside
        )

    @property
    def name(self) -> str:
        """Declared name, else the stem of the file or the folder's name."""
        if declared := self.manifest.text("name"):
            return declared
        if self.target:
            return self.target
        if self.only:
            return PurePosixPath(self.only).name.split(".")[0] or self.only
        return self.root.name or "environment"


class Format(Protocol):
    """A module of ``formats/`` that reads packages."""

    NAME: str
    FAMILY: Family

    def detect(self, package: Package) -> str | None:
        """Return what makes this package one of the format, or None."""

    def read(self, package: Package) -> Environment:
        """Return the parsed environment.

        Raises:
            UnreadablePackageError: The files do not form one.
        """


class NamedFormat(Protocol):
    """A module of ``formats/`` whose source is a name, as in ``gymnasium:CartPole-v1``."""

    NAME: str
    FAMILY: Family

    def read_named(self, name: str, options: Mapping[str, Any]) -> Environment:
        """Return the environment behind a name.

        Raises:
            InvalidInputError: The name or an option cannot be one.
        """


def is_documentation(path: str) -> bool:
    """Say whether a file at the root is for people alone."""
    return "/" not in path and _DOCUMENTATION.fullmatch(path) is not None


def split_shared(
    package: Package, *, leave_out: Iterable[str] = ()
) -> tuple[list[FileEntry], list[FileEntry]]:
    """Return the files that all tasks share, and the documentation.

    A row, documentation or requirements file whose name stands in a Python file is read at run
    time, as far as we can tell, and so is shared.
    """
    out = set(leave_out)
    python = [entry for entry in package.entries if entry.path.endswith(".py")]
    sources = "\n".join(
        read_bytes(package.root, entry.path, entry.size).decode("utf-8", "replace")
        for entry in python
        if entry.kind == "file" and entry.size <= package.limits.source_bytes
    )
    shared: list[FileEntry] = []
    documentation: list[FileEntry] = []
    for entry in package.entries:
        mentioned = PurePosixPath(entry.path).name in sources
        if is_documentation(entry.path) and not mentioned:
            documentation.append(entry)
        elif mentioned or not (entry.path in out or _DECLARATION.fullmatch(entry.path)):
            shared.append(entry)
    return shared, documentation


def environment_layer(package: Package | None, dependencies: Dependencies, **more: object) -> str:
    """Return the digest of what trials run in, as far as the files say it."""
    return digest_json(
        "environment-layer",
        {
            "requirements": list(dependencies.requirements),
            "python": dependencies.python,
            "manifest": package.manifest.layer if package else {},
            **more,
        },
    )


def documentation_layer(entries: Iterable[FileEntry]) -> dict[str, str]:
    """Return the documentation layer, empty where there is none."""
    tree = list(entries)
    return {"documentation": digest_tree(tree)} if tree else {}


def make_task(task_id: str, layers: Mapping[str, str], data: Mapping[str, Any]) -> Task:
    """Return a task with its digest."""
    return Task(id=task_id, layers=dict(layers), digest=digest_task(layers), data=data)


def make_environment(
    package: Package,
    *,
    adapter: str,
    family: Family,
    tasks: Sequence[Task],
    files: Iterable[FileEntry],
    shared: Iterable[FileEntry],
    dependencies: Dependencies,
    entry: Mapping[str, Any] | None = None,
    reward: RewardSpec | None = None,
    problems: Iterable[Problem] = (),
) -> Environment:
    """Return the environment that a format has read from files."""
    shared_files = tuple(shared)
    tree = digest_tree(shared_files)
    launch = {
        key: package.manifest.environment[key]
        for key in ("launcher", "devices", "labels")
        if key in package.manifest.environment
    }
    all_files = tuple(files)
    return Environment(
        name=package.name,
        adapter=adapter,
        family=family,
        digest=digest_environment(tree, {task.id: task.digest for task in tasks}),
        tasks=tuple(tasks),
        root=package.root,
        files=all_files,
        entry={**(entry or {}), **launch},
        shared=tree,
        shared_files=tuple(item.path for item in shared_files),
        dependencies=dependencies,
        reward=package.manifest.reward(reward or RewardSpec()),
        domain=package.manifest.text("domain") or None,
        seedable=package.manifest.seedable,
        problems=(*problems, *_name_clashes(all_files)),
        requests=dict(package.manifest.requests),
    )


def task_id_fault(value: object) -> str:
    """Return why a value cannot be a task's id, or an empty string."""
    if not isinstance(value, str) or not value.strip():
        return "the id of a row must be text that is not empty"
    if len(value) > _MAX_TASK_ID:
        return f"the id of a row is longer than {_MAX_TASK_ID} characters"
    if not value.isprintable():
        return "the id of a row has characters that cannot be printed"
    return ""


def _name_clashes(files: Iterable[FileEntry]) -> list[Problem]:
    seen: dict[str, str] = {}
    problems: list[Problem] = []
    for entry in files:
        first = seen.setdefault(entry.path.casefold(), entry.path)
        if first != entry.path:
            problems.append(
                Problem(
                    NAME_CLASH,
                    f"{first} and {entry.path} are one file where case does not count.",
                    entry.path,
                    ground="file names differ in case alone",
                )
            )
    return problems
