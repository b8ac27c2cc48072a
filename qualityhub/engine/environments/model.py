"""What an environment is: parsed files, never imported code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Family = Literal["function", "scorer", "episode", "task"]
"""How trials of the environment run; one in-sandbox program each."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One entry of the package tree, as the digest definition sees it.

    Attributes:
        path: NFC-normalised POSIX path relative to the root.
        kind: ``file`` or ``link``; anything else is refused by the reader.
        mode: The execute bits alone (``st_mode & 0o111``); 0 for links.
        size: Bytes; 0 for links.
        sha256: Hex digest of the content; empty for links.
        target: Link target as written; empty for files.
    """

    path: str
    kind: Literal["file", "link"]
    mode: int
    size: int
    sha256: str
    target: str = ""


@dataclass(frozen=True, slots=True)
class RewardSpec:
    """The declared meaning of a reward.

    Attributes:
        low: Smallest reward, or None where nothing bounds it.
        high: Largest reward, or None where nothing bounds it.
        success: A reward at or above this counts as solved.
        declared: Whether the owner stated the range; an assumed one never rejects.
    """

    low: float | None = 0.0
    high: float | None = 1.0
    success: float = 1.0
    declared: bool = False


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What the environment says it needs.

    Attributes:
        requirements: PEP 508 strings in the order they were declared.
        sources: Where they were declared, e.g. ``("requirements.txt",)``.
        python: Version specifier such as ``>=3.11``, or None.
        self_declared: True where the source itself is the declaration (``gymnasium:ID``): newest
            is meant, and the lock is printed.
    """

    requirements: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    python: str | None = None
    self_declared: bool = False


@dataclass(frozen=True, slots=True)
class Problem:
    """Something the reader saw that a format rule turns into a finding.

    Attributes:
        code: Rule code, e.g. ``FMT001``.
        message: One sentence.
        location: Relative path, with ``:line`` where there is one.
        task: Task id, or None where it concerns the whole package.
        ground: Stable words for the fingerprint: no paths, lines or digests.
    """

    code: str
    message: str
    location: str = ""
    task: str | None = None
    ground: str = ""


@dataclass(frozen=True, slots=True)
class Task:
    """One task, judged for itself.

    Attributes:
        id: Unique within the environment.
        layers: Digest per layer that the task has.
        digest: Digest over all layers but documentation.
        data: What the family's program needs. ``function``: the JSONL row. ``scorer``: ``prompt``,
            ``answer``, ``info``. ``episode``: empty. ``task``: see the Harbor reader.
    """

    id: str
    layers: Mapping[str, str]
    digest: str
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Environment:
    """One environment version, as read from files.

    Attributes:
        name: Short name; the folder or file stem unless declared.
        adapter: Format reader that understood it, e.g. ``humaneval``.
        family: Which in-sandbox program drives it.
        digest: Over the layers of all tasks and the shared files (see ``engine/digest.py``).
        tasks: At least one.
        root: Where the files are on this host, or None for a source that has none
            (``gymnasium:ID``).
        files: Every entry below root that belongs to the package.
        entry: What the program loads: ``{"module" | "file", "name", "kwargs"}`` and more per
            family.
        shared: Digest of the files that all tasks share (scorer module, environment module).
        shared_files: Paths of those files: a trial sees these and nothing else below root, see
            ``environments/staging.py``. Rows and documentation are not among them.
        domain: As declared by the owner; the hub or ``--domain`` may say otherwise.
        seedable: False where the owner declares that a seed does not fix the episode.
        problems: What the reader saw.
        requests: Owner's ``[rules]`` and ``[[waivers]]`` tables: requests, which policy may grant.
    """

    name: str
    adapter: str
    family: Family
    digest: str
    tasks: tuple[Task, ...]
    root: Path | None = None
    files: tuple[FileEntry, ...] = ()
    entry: Mapping[str, Any] = field(default_factory=dict)
    shared: str = ""
    shared_files: tuple[str, ...] = ()
    dependencies: Dependencies = field(default_factory=Dependencies)
    reward: RewardSpec = field(default_factory=RewardSpec)
    domain: str | None = None
    seedable: bool = True
    problems: tuple[Problem, ...] = ()
    requests: Mapping[str, Any] = field(default_factory=dict)
