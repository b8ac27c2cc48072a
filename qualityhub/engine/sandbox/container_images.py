"""Which image of the engine stands for a tree of ours."""

from __future__ import annotations

import contextlib
import os
import tarfile
import threading
from pathlib import Path
from typing import IO

import docker
from docker.errors import DockerException, ImageNotFound

from qualityhub.engine.errors import MachineryError, SandboxUnavailableError
from qualityhub.engine.sandbox import idmaps, store

REPOSITORY = "qualityhub/tree"
_PIECE = 1024 * 1024


def image_of(client: docker.DockerClient, base: Path, home: Path) -> str:
    """Return the engine's image with the files of an exported tree, given to it where it has none.

    Args:
        client: The engine.
        base: A tree of our store.
        home: Our data folder.

    Raises:
        SandboxUnavailableError: The engine no longer has the image, and the tree here cannot stand
            for it, since it has lost whose files they are.
        MachineryError: The engine does not take the tree.
        DockerException: The engine failed.
    """
    facts = store.read_json(base.with_name(base.name + ".json")) or {}
    name = f"{REPOSITORY}:{base.name}"
    for known in (str(facts.get("image") or ""), name):
        if known and _has(client, known):
            return known
    owner = idmaps.current().owner
    if owner < 0:
        raise SandboxUnavailableError(
            "sandbox.image_gone",
            "the container engine no longer has the image, and its files here have lost their "
            "owners",
            "inspect with --no-cache: the image is built again",
        )
    with store.locked(home, "engine-images", base.name):
        if not _has(client, name):
            _give(client, base, owner)
    return name


def _has(client: docker.DockerClient, name: str) -> bool:
    try:
        client.images.get(name)
    except ImageNotFound:
        return False
    return True


def _give(client: docker.DockerClient, base: Path, owner: int) -> None:
    """Load a tree into the engine; the tar is made while it is sent."""
    source, sink = os.pipe()
    problem: list[Exception] = []

    def write() -> None:
        try:
            with os.fdopen(sink, "wb") as stream:
                write_tree(base, owner, stream)
        except (OSError, tarfile.TarError) as error:
            problem.append(error)

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    try:
        with os.fdopen(source, "rb") as stream:
            pieces = iter(lambda: stream.read(_PIECE), b"")
            # Name and tag in one: not every engine reads the tag by itself.
            client.api.import_image_from_stream(pieces, repository=f"{REPOSITORY}:{base.name}")
    finally:
        writer.join()
    if problem:
        with contextlib.suppress(DockerException, OSError):
            client.api.remove_image(f"{REPOSITORY}:{base.name}")
        raise MachineryError(
            "sandbox.engine", f"a tree could not be given to the engine: {problem[0]}"
        )


def write_tree(base: Path, owner: int, stream: IO[bytes]) -> None:
    """Write a stored tree as a tar whose owners are those of the image.

    Args:
        base: The tree.
        owner: Host id that its root's files belong to.
        stream: Where to.
    """

    def own(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid, entry.gid = max(0, entry.uid - owner), max(0, entry.gid - owner)
        entry.uname = entry.gname = ""
        return entry

    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as out:
        for path in sorted(base.iterdir()):
            out.add(path, arcname=path.name, filter=own)
