"""What is known of an image whose tree is in the store."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qualityhub.engine.digest import digest_json
from qualityhub.engine.sandbox import store

KIND = "images"
LOG_CHARACTERS = 8_000
_MOST_WORDS = 4096


@dataclass(frozen=True, slots=True)
class ImageTree:
    """An image as a tree.

    Attributes:
        path: Host folder that is its ``/``.
        digest: Of its configuration, which names the content of every layer.
        env: Variables it sets.
        workdir: Working directory, empty for none.
        user: As the image says, empty for root.
        log: Tail of the build's output.
        entrypoint: Program that starts its containers, with its first arguments.
        cmd: What the program gets, or what starts where there is no program.
        log_file: Host file with the build's whole output, compressed; None where there was none.
    """

    path: Path
    digest: str
    env: dict[str, str]
    workdir: str
    user: str
    log: str = ""
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    log_file: Path | None = None


@dataclass(frozen=True, slots=True)
class ImageFailed:
    """There is no image.

    Attributes:
        reason: One sentence.
        log: Tail of the build's output.
        host_fault: True where this host is at fault (no registry, no network), not the Dockerfile.
        would_need: What would make it possible, where the host is at fault.
        log_file: Host file with the build's whole output, compressed; None where there was none.
    """

    reason: str
    log: str = ""
    host_fault: bool = False
    would_need: str = ""
    log_file: Path | None = None


def image_digest(identity: str) -> str:
    """Return our digest of an image.

    Args:
        identity: Hex sha256 of its configuration, as engines name images.
    """
    return digest_json("image-tree", identity.removeprefix("sha256:"))


def config_facts(identity: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is kept of an image's configuration beside its tree.

    Args:
        identity: As for :func:`image_digest`.
        config: The ``config`` of its configuration, foreign; what has a wrong type is refused.

    Raises:
        ValueError: It has values that no engine takes.
    """
    env: dict[str, str] = {}
    for item in _words(config, "Env"):
        name, equals, value = item.partition("=")
        if name and equals:
            env[name] = value
    workdir = _text(config, "WorkingDir")
    return {
        "image": f"sha256:{identity.removeprefix('sha256:')}",
        "env": env,
        "workdir": posixpath.normpath("/" + workdir.lstrip("/")) if workdir else "",
        "user": _text(config, "User").strip(),
        "entrypoint": _words(config, "Entrypoint"),
        "cmd": _words(config, "Cmd"),
    }


def stored_image(home: Path, digest: str) -> ImageTree | None:
    """Return an image whose tree is here, or None."""
    found = store.lookup(home, KIND, digest)
    if found is None:
        return None
    path, facts = found
    return ImageTree(
        path,
        digest,
        dict(facts["env"]),
        facts["workdir"],
        facts["user"],
        entrypoint=tuple(facts["entrypoint"]),
        cmd=tuple(facts["cmd"]),
    )


def _words(config: Mapping[str, Any], key: str) -> list[str]:
    value = config.get(key)
    if value is None:
        return []
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list) or len(value) > _MOST_WORDS:
        raise ValueError(f"{key} is no list of words")
    for item in value:
        if not isinstance(item, str) or "\0" in item:
            raise ValueError(f"{key} is no list of words")
    return list(value)


def _text(config: Mapping[str, Any], key: str) -> str:
    value = config.get(key)
    if value is None:
        return ""
    if not isinstance(value, str) or "\0" in value:
        raise ValueError(f"{key} is no text")
    return value
