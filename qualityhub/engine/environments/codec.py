"""An environment as a JSON document and back, so that it is parsed once and stored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, get_args

from qualityhub.engine.environments.model import (
    Dependencies,
    Environment,
    Family,
    FileEntry,
    Problem,
    RewardSpec,
    Task,
)
from qualityhub.engine.errors import InvalidInputError

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = "qualityhub.environment/1"


def environment_to_json(environment: Environment) -> dict[str, Any]:
    """Return a document of plain JSON values; the root, a path of this host, is left out."""
    return {
        "schema": SCHEMA,
        "name": environment.name,
        "adapter": environment.adapter,
        "family": environment.family,
        "digest": environment.digest,
        "tasks": [
            {
                "id": task.id,
                "layers": dict(task.layers),
                "digest": task.digest,
                "data": _plain(task.data),
            }
            for task in environment.tasks
        ],
        "files": [
            [item.path, item.kind, item.mode, item.size, item.sha256, item.target]
            for item in environment.files
        ],
        "entry": _plain(environment.entry),
        "shared": environment.shared,
        "shared_files": list(environment.shared_files),
        "dependencies": _plain(asdict(environment.dependencies)),
        "reward": asdict(environment.reward),
        "domain": environment.domain,
        "seedable": environment.seedable,
        "problems": [asdict(problem) for problem in environment.problems],
        "requests": _plain(environment.requests),
    }


def environment_from_json(document: Mapping[str, Any], root: Path | None) -> Environment:
    """Return the environment of a document that :func:`environment_to_json` made.

    Args:
        document: Parsed JSON.
        root: Where its files are on this host; None where it has none.

    Raises:
        InvalidInputError: ``environment.bad_document``: not such a document.
    """
    try:
        if document["schema"] != SCHEMA or document["family"] not in get_args(Family):
            raise _bad_document("another schema or family")
        dependencies = document["dependencies"]
        return Environment(
            name=document["name"],
            adapter=document["adapter"],
            family=document["family"],
            digest=document["digest"],
            tasks=tuple(
                Task(item["id"], item["layers"], item["digest"], item["data"])
                for item in document["tasks"]
            ),
            root=root,
            files=tuple(FileEntry(*item) for item in document["files"]),
            entry=document["entry"],
            shared=document["shared"],
            shared_files=tuple(document["shared_files"]),
            dependencies=Dependencies(
                requirements=tuple(dependencies["requirements"]),
                sources=tuple(dependencies["sources"]),
                python=dependencies["python"],
                self_declared=dependencies["self_declared"],
            ),
            reward=RewardSpec(**document["reward"]),
            domain=document["domain"],
            seedable=document["seedable"],
            problems=tuple(Problem(**item) for item in document["problems"]),
            requests=document["requests"],
        )
    except (KeyError, TypeError) as error:
        raise _bad_document(f"{type(error).__name__} {error}") from error


def _bad_document(why: str) -> InvalidInputError:
    return InvalidInputError(
        "environment.bad_document",
        f"This is no stored environment of this version: {why}.",
        "Read the package again.",
    )


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
