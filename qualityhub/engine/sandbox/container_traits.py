"""What a container engine can do for us: asked once, by trying."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import docker
from docker.errors import DockerException

from qualityhub.engine.sandbox import seccomp, store
from qualityhub.engine.sandbox.container_life import create, remove

_RANGE = "auto:size=65536"
_ASK = "cat /proc/self/uid_map; cat /qh-probe 2>/dev/null; exit 0"
_WAIT_S = 60


@dataclass(frozen=True, slots=True)
class Traits:
    """What was found out.

    Attributes:
        remapped: Whether root inside is another user for the engine's host.
        userns: What to ask the engine for so that it is; empty where nothing is needed or helps.
        profile: Option that sets our system call filter; empty where only the engine's own works.
        shared: Whether folders of ours can be mounted (no other machine, no container of ours).
        quota: Whether the engine bounds what a container writes.
        layers: Whether we may look into what a container writes, and so count its files.
    """

    remapped: bool = False
    userns: str = ""
    profile: str = ""
    shared: bool = False
    quota: bool = False
    layers: bool = False


def find_traits(client: docker.DockerClient, image: str, home: Path) -> Traits:
    """Find out what an engine can do; takes some seconds.

    Args:
        client: The engine.
        image: An image that it has, with a shell.
        home: Our data folder.

    Raises:
        DockerException: The engine does not run even the plainest container.
    """
    options = [str(item) for item in client.info().get("SecurityOptions") or []]
    found = Traits(remapped=any("rootless" in item or "userns" in item for item in options))
    with _probe_file(home) as (folder, word):
        found = _roots(client, image, found, f"{folder}/word", word)
    for profile in _profiles(home, shared=found.shared):
        if _runs(client, image, {"SecurityOpt": [profile]}, found) is not None:
            found = replace(found, profile=profile)
            break
    size = {"StorageOpt": {"size": str(64 * 1024 * 1024)}}
    return replace(
        found,
        quota=_runs(client, image, size, found) is not None,
        layers=_shows_layers(client, image),
    )


def layer_of(client: docker.DockerClient, container: str) -> Path | None:
    """Return the folder of what a container writes, where we may look into it."""
    driver = client.api.inspect_container(container).get("GraphDriver") or {}
    upper = (driver.get("Data") or {}).get("UpperDir")
    if not upper or not os.access(upper, os.R_OK | os.X_OK):
        return None
    return Path(upper)


def _roots(client: docker.DockerClient, image: str, found: Traits, path: str, word: str) -> Traits:
    bind = {"Mounts": [{"Type": "bind", "Source": path, "Target": "/qh-probe", "ReadOnly": True}]}
    tried = [("", bind), ("", {})]
    if not found.remapped:
        tried = [(_RANGE, bind), (_RANGE, {}), *tried]
    for userns, option in tried[:-1]:
        said = _runs(client, image, option, replace(found, userns=userns))
        if said is not None:
            return replace(
                found,
                userns=userns,
                remapped=found.remapped or _is_remapped(said),
                shared=word in said,
            )
    # The plainest container of all: its failure is the engine's own.
    _run(client, image, {}, found)
    return found


def _shows_layers(client: docker.DockerClient, image: str) -> bool:
    container = create(client, {"Image": image, "Entrypoint": ["/bin/sh"]})
    try:
        return layer_of(client, container) is not None
    finally:
        remove(client, container)


def _is_remapped(said: str) -> bool:
    rows = [line.split() for line in said.splitlines()]
    maps = [row for row in rows if len(row) == 3 and all(word.isdigit() for word in row)]
    return bool(maps) and all(row[1] != "0" for row in maps if row[0] == "0")


def _profiles(home: Path, *, shared: bool) -> Iterator[str]:
    """Yield ways to hand over our filter: its text (Docker), or a file's name (Podman)."""
    text = seccomp.profile()
    yield f"seccomp={text}"
    if shared:
        file = home / "container" / "seccomp.json"
        rules = json.loads(text)
        if store.read_json(file) != rules:
            store.write_json(file, rules)
        yield f"seccomp={file.resolve()}"


@contextmanager
def _probe_file(home: Path) -> Iterator[tuple[str, str]]:
    home.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home, prefix=".probe-") as folder:
        Path(folder).chmod(0o755)
        word = secrets.token_hex(16)
        file = Path(folder) / "word"
        file.write_text(word, encoding="ascii")
        file.chmod(0o644)
        yield folder, word


def _runs(
    client: docker.DockerClient, image: str, option: dict[str, Any], found: Traits
) -> str | None:
    with contextlib.suppress(DockerException):
        return _run(client, image, option, found)
    return None


def _run(client: docker.DockerClient, image: str, option: dict[str, Any], found: Traits) -> str:
    host = {"NetworkMode": "none", "CapDrop": ["ALL"], **option}
    host["LogConfig"] = {"Type": "json-file"}
    if found.userns:
        host["UsernsMode"] = found.userns
    container = create(
        client, {"Image": image, "Entrypoint": ["/bin/sh", "-c"], "Cmd": [_ASK], "HostConfig": host}
    )
    try:
        client.api.start(container)
        client.api.wait(container, timeout=_WAIT_S)
        return client.api.logs(container).decode(errors="replace")
    finally:
        remove(client, container)
