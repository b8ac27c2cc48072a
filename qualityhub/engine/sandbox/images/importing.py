"""Import an image archive without any engine: verify, unpack layer over layer, keep as a tree."""

from __future__ import annotations

import errno
import hashlib
import tarfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from qualityhub.engine.errors import InvalidInputError, MachineryError
from qualityhub.engine.sandbox import idmaps, store
from qualityhub.engine.sandbox.images.archive import Archive, Decompressed, bad, open_archive
from qualityhub.engine.sandbox.images.index import ArchivedImage, ArchivedLayer, find_image
from qualityhub.engine.sandbox.images.model import (
    KIND,
    ImageTree,
    config_facts,
    image_digest,
    stored_image,
)
from qualityhub.engine.sandbox.tarstream import PIECE, entries, parts_of, shown
from qualityhub.engine.sandbox.treewriter import TreeWriter

_TELL_EVERY_S = 1.0
_HOST_ERRORS = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EIO,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.ENOMEM,
    errno.EMFILE,
    errno.ENFILE,
}


@dataclass(frozen=True, slots=True)
class ImportLimits:
    """How large an image may be.

    Attributes:
        archive_bytes: The archive, decompressed; also all layers' tars together.
        tree_bytes: Files of all layers together.
        entries: Of all layers together.
    """

    archive_bytes: int = 64 * 1024**3
    tree_bytes: int = 64 * 1024**3
    entries: int = 2_000_000


@dataclass(frozen=True, slots=True)
class Imported:
    """An image that was imported.

    Attributes:
        tree: Where it is now.
        names: As the archive calls it.
        new: False where the same image was here already.
    """

    tree: ImageTree
    names: tuple[str, ...]
    new: bool


def import_archive(
    path: Path,
    home: Path,
    on_progress: Callable[[str], None] | None = None,
    *,
    wanted: str = "",
    limits: ImportLimits | None = None,
) -> Imported:
    """Return the tree of an archived image, from the store where the same image is there already.

    Args:
        path: OCI layout or what ``docker save`` wrote: a folder or a tar, perhaps compressed.
        home: Our data folder.
        on_progress: Told one line at each step, at most about one a second.
        wanted: Name of one image, where the archive holds several.
        limits: How large it may be.

    Raises:
        InvalidInputError: It is no image archive, holds none for this host, is damaged, larger
            than accepted or not safe to unpack; the code says which (``image.archive``,
            ``image.platform``, ``image.several``, ``image.digest``, ``image.too_large``,
            ``image.unsafe``).
        MachineryError: This host could not store it.
    """
    tell = on_progress or (lambda _: None)
    limits = limits or ImportLimits()
    try:
        with (
            store.fresh(home, KIND) as place,
            open_archive(path, place.with_name("plain.tar"), limits.archive_bytes) as archive,
        ):
            image = find_image(archive, wanted)
            digest = image_digest(image.id)
            with store.locked(home, KIND, digest):
                tree = stored_image(home, digest)
                if tree is not None:
                    return Imported(tree, image.names, new=False)
                facts = _facts(image)
                _Unpacker(archive, image, place, tell, limits).run()
                tell("storing the image")
                store.publish(home, KIND, digest, place, facts)
            tree = stored_image(home, digest)
    except OSError as error:
        raise MachineryError(
            "image.not_stored",
            f"this host could not store the image: {error.strerror or error}",
            "Make room below the data folder, or name another one in QH_HOME.",
        ) from error
    if tree is None:
        raise MachineryError("image.lost", "an imported image vanished from the store")
    return Imported(tree, image.names, new=True)


def _facts(image: ArchivedImage) -> dict[str, object]:
    config = image.config.get("config") or {}
    if not isinstance(config, dict):
        raise bad("Its configuration cannot be used: config is no object.")
    try:
        return config_facts(image.id, config)
    except ValueError as error:
        raise bad(f"Its configuration cannot be used: {error}.") from error


class _Unpacker:
    """Unpacks the layers of one image."""

    def __init__(
        self,
        archive: Archive,
        image: ArchivedImage,
        place: Path,
        tell: Callable[[str], None],
        limits: ImportLimits,
    ) -> None:
        self._archive = archive
        self._image = image
        self._place = place
        self._tell = tell
        self._limits = limits
        self._left = limits.archive_bytes
        self._told = 0.0

    def run(self) -> None:
        """Write the tree and check every digest; raises as :func:`import_archive`."""
        writer = TreeWriter(
            self._place,
            idmaps.current().owner,
            most_entries=self._limits.entries,
            most_bytes=self._limits.tree_bytes,
            pipes=True,
        )
        try:
            for number, layer in enumerate(self._image.layers, 1):
                self._layer(writer, layer, f"layer {number}/{len(self._image.layers)}")
            writer.finish()
        finally:
            writer.close()

    def _layer(self, writer: TreeWriter, layer: ArchivedLayer, label: str) -> None:
        self._tell(f"unpacking {label}")
        with self._archive.open(layer.file) as file:
            blob = _Hashed(file, layer.digest or "sha256:")
            try:
                tar = _Hashed(Decompressed(blob, self._left), layer.diff_id)
                writer.begin_layer()
                for entry, content in entries(tar):
                    writer.add(entry, _relative(entry.name), content)
                    self._show(label, blob.size)
                while tar.read(PIECE):
                    pass
                while blob.read(PIECE):
                    pass
            except (ValueError, tarfile.TarError) as error:
                raise _broken(label, error) from error
            except OSError as error:
                if error.errno in _HOST_ERRORS:
                    raise
                raise _broken(label, error) from error
            self._left -= tar.size
            if layer.size not in {-1, blob.size}:
                raise _wrong(label)
            if not tar.matches() or (layer.digest and not blob.matches()):
                raise _wrong(label)

    def _show(self, label: str, size: int) -> None:
        now = time.monotonic()
        if now - self._told >= _TELL_EVERY_S:
            self._told = now
            self._tell(f"unpacking {label}: {size / 1e6:,.0f} MB read")


def _relative(name: str) -> list[str]:
    if name.startswith("/"):
        raise ValueError(f"{shown(name)} is an absolute name")
    return parts_of(name)


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


class _Hashed:
    """A stream that is hashed and counted as it is read."""

    def __init__(self, source: _Readable, digest: str) -> None:
        algorithm, _, self._stated = digest.partition(":")
        self._source = source
        self._hash = hashlib.new(algorithm)
        self.size = 0

    def read(self, size: int) -> bytes:
        data = self._source.read(size)
        self._hash.update(data)
        self.size += len(data)
        return data

    def matches(self) -> bool:
        return self._hash.hexdigest() == self._stated


def _broken(label: str, error: Exception) -> InvalidInputError:
    text = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
    if "larger than accepted" in text:
        return bad(f"In {label}: {text}.", "Save a smaller image.", "image.too_large")
    return bad(
        f"The {label} of the image cannot be unpacked: {text}.",
        "Write the archive again; if it is the same, it was not made by docker, podman or skopeo.",
        "image.unsafe",
    )


def _wrong(label: str) -> InvalidInputError:
    return bad(
        f"The content of {label} does not match its digest.",
        "The archive was damaged or changed: write it again.",
        "image.digest",
    )
