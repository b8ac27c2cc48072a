"""Take the files of an engine's image into our store."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

import docker

from qualityhub.engine.errors import MachineryError
from qualityhub.engine.sandbox import idmaps, store
from qualityhub.engine.sandbox.images.model import (
    KIND,
    ImageTree,
    config_facts,
    image_digest,
    stored_image,
)
from qualityhub.engine.sandbox.trees import unpack_stream


def export_image(client: docker.DockerClient, identity: str, home: Path) -> ImageTree:
    """Return the tree of an image that the engine has, from the store where it is there already.

    Args:
        client: The engine.
        identity: The image's id.
        home: Our data folder.

    Raises:
        MachineryError: It could not be stored.
        docker.errors.DockerException: The engine failed.
    """
    attributes = client.images.get(identity).attrs
    identity = str(attributes["Id"])
    digest = image_digest(identity)
    with store.locked(home, KIND, digest):
        tree = stored_image(home, digest)
        if tree is not None:
            return tree
        try:
            facts = config_facts(identity, attributes.get("Config") or {})
        except ValueError as error:
            raise MachineryError(
                "image.config", f"the engine's image cannot be used: {error}"
            ) from error
        # Never started: creating a container is how an engine shows an image's files.
        container = client.api.create_container(identity, command=["/bin/true"])
        try:
            with store.fresh(home, KIND) as place:
                chunks = client.api.export(container["Id"])
                stream = cast("IO[bytes]", io.BufferedReader(_Chunks(iter(chunks))))
                unpack_stream(stream, place, idmaps.current().owner, pipes=True)
                store.publish(home, KIND, digest, place, facts)
        finally:
            client.api.remove_container(container["Id"], force=True)
    tree = stored_image(home, digest)
    if tree is None:
        raise MachineryError("image.lost", "an exported image vanished from the store")
    return tree


class _Chunks(io.RawIOBase):
    """A stream over the pieces that the engine sends."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""

    def readable(self) -> bool:
        """Say that it can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer as far as the next piece goes."""
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = piece
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size
