"""What a layer is made of, and how making one can end."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

from packaging.utils import canonicalize_name

TARGET = "/qh/layer"
"""Where a layer is built and where it is mounted: a virtual environment knows its own path."""

BUILDER_VERSION = 3
LOG_CHARACTERS = 8_000

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class LayerFailed:
    """The declared requirements cannot be had: the environment's own fault.

    Attributes:
        reason: One sentence.
        log: Tail of what the tools said.
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
        log: Tail of what the tools said.
    """

    reason: str
    would_need: str
    log: str = ""


class StoppedError(Exception):
    """Carries an outcome up to the one who asked for a layer; never seen outside."""

    def __init__(self, outcome: LayerFailed | LayerUnavailable) -> None:
        super().__init__(outcome.reason)
        self.outcome = outcome


@dataclass(frozen=True, slots=True)
class IndexFile:
    """One file of a package index.

    Attributes:
        name: File name, checked to be one.
        url: Where the index says it is; no part of what it means.
        sha256: Of its content.
    """

    name: str
    url: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Package:
    """One package of a lock.

    Attributes:
        name: Normalised name.
        version: Version.
        wheels: Files to install; empty where it must be built.
        source: Source distribution to build, or None.
        tools: Wheels that the build may use, and nothing else.
    """

    name: str
    version: str
    wheels: tuple[IndexFile, ...] = ()
    source: IndexFile | None = None
    tools: tuple[IndexFile, ...] = ()

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


@dataclass(frozen=True, slots=True)
class Lock:
    """Everything that some requirements resolve to on one interpreter and platform.

    Attributes:
        packages: By name.
        log: Tail of what resolving said.
    """

    packages: tuple[Package, ...]
    log: str

    @property
    def names(self) -> tuple[str, ...]:
        """``name==version``, sorted."""
        return tuple(sorted(f"{item.name}=={item.version}" for item in self.packages))

    def meaning(self) -> list[Any]:
        """Return what makes two locks the same on any host: content, never where it lies."""
        return [
            [
                item.name,
                item.version,
                _contents(item.wheels),
                item.source.sha256 if item.source is not None else "",
                _contents(item.tools),
            ]
            for item in sorted(self.packages, key=lambda item: item.name)
        ]

    def as_json(self) -> dict[str, Any]:
        """Return a document that :func:`lock_from_json` reads."""
        return asdict(self)


def lock_from_json(value: dict[str, Any]) -> Lock | None:
    """Return a stored lock, or None where it is of another form than ours."""
    try:
        packages = tuple(
            Package(
                row["name"],
                row["version"],
                tuple(IndexFile(**file) for file in row["wheels"]),
                IndexFile(**row["source"]) if row["source"] is not None else None,
                tuple(IndexFile(**file) for file in row["tools"]),
            )
            for row in value["packages"]
        )
        return Lock(packages, value["log"])
    except (KeyError, TypeError):
        return None


def same_name(one: str, other: str) -> bool:
    """Whether two spellings name one package."""
    return canonicalize_name(one) == canonicalize_name(other)


def _contents(files: Iterable[IndexFile]) -> list[list[str]]:
    return sorted([file.name, file.sha256] for file in files)
