"""Find the one image of an archive that this host can run: OCI layout or docker save."""

from __future__ import annotations

import hashlib
import platform
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from qualityhub.engine.sandbox.images.archive import Archive, bad, parse, read_document
from qualityhub.engine.sandbox.tarstream import shown

MOST_LAYERS = 1024
_MOST_DESCRIPTORS = 1000
_DEEPEST_INDEX = 4
_DIGEST = re.compile(r"(sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})\Z")
_HEX = re.compile(r"[0-9a-f]{64}\Z")
_ARCHITECTURES = {
    "x86_64": "amd64",
    "aarch64": "arm64",
    "armv7l": "arm",
    "armv6l": "arm",
    "i686": "386",
    "loongarch64": "loong64",
}
# Best first; what is not listed comes last.
_VARIANTS = {"arm64": ("", "v8"), "arm": ("v7", "v6", "v5", ""), "amd64": ("", "v1", "v2")}
_NAME_KEYS = ("io.containerd.image.name", "org.opencontainers.image.ref.name")


@dataclass(frozen=True, slots=True)
class ArchivedLayer:
    """One layer, lowest first.

    Attributes:
        file: Where it lies in the archive.
        digest: Of that file, ``algorithm:hex``; empty where the archive does not say.
        size: Of that file in bytes, -1 where the archive does not say.
        diff_id: Digest of its tar.
    """

    file: str
    digest: str
    size: int
    diff_id: str


@dataclass(frozen=True, slots=True)
class ArchivedImage:
    """An image as an archive describes it.

    Attributes:
        id: Hex sha256 of its configuration.
        config: Its configuration, a JSON object.
        layers: Lowest first.
        names: As the archive calls it.
    """

    id: str
    config: Mapping[str, Any]
    layers: tuple[ArchivedLayer, ...]
    names: tuple[str, ...]


@dataclass(slots=True)
class _Found:
    """A manifest for this host, and what it is called."""

    manifest: Mapping[str, Any]
    variant: str
    names: list[str] = field(default_factory=list)


def architecture() -> str:
    """Return this host's processor as images name it."""
    machine = platform.machine()
    return _ARCHITECTURES.get(machine, machine)


def find_image(archive: Archive, wanted: str = "") -> ArchivedImage:
    """Return the image that an archive holds for this host.

    Args:
        archive: Open.
        wanted: Name of one, where it holds several.

    Raises:
        InvalidInputError: It is no image archive, a digest does not match, it holds none for this
            host (``image.platform``), or several (``image.several``).
    """
    if archive.has("index.json"):
        return _Layout(archive).find(wanted)
    if archive.has("manifest.json"):
        return _saved(archive, wanted)
    raise bad(
        "It is no image archive: neither index.json nor manifest.json is in it.",
        "Give an OCI layout or what `docker save` wrote, as a folder or as a tar.",
    )


class _Layout:
    """Walks an OCI layout from its index down."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._left = _MOST_DESCRIPTORS
        self._others: set[str] = set()

    def find(self, wanted: str) -> ArchivedImage:
        index = _object(parse(read_document(self._archive, "index.json"), "index.json"))
        found: dict[str, _Found] = {}
        for digest, seen, name in self._images(index, "", "", 0):
            kept = found.setdefault(digest, seen)
            if name and name not in kept.names:
                kept.names.append(name)
        if not found:
            raise _no_platform(self._others)
        chosen = _choose(list(found.values()), wanted)
        image = self._image(chosen)
        _check_platform(image.config)
        return image

    def _images(
        self, index: Mapping[str, Any], name: str, variant: str, depth: int
    ) -> Iterator[tuple[str, _Found, str]]:
        if depth > _DEEPEST_INDEX:
            raise bad("Its indexes are nested too deep.")
        for item in _objects(index.get("manifests")):
            self._left -= 1
            if self._left < 0:
                raise bad(f"Its indexes list more than {_MOST_DESCRIPTORS:,} images.")
            notes = _object(item.get("annotations") or {})
            if notes.get("vnd.docker.reference.type"):
                continue  # Signed statements about an image travel beside it.
            called = next((str(notes[key]) for key in _NAME_KEYS if notes.get(key)), name)
            mine, kind = self._is_ours(item)
            if not mine:
                continue
            document = _object(parse(self._blob(item), str(item.get("digest"))))
            if "manifests" in document:
                yield from self._images(document, called, kind or variant, depth + 1)
            elif "config" in document and "layers" in document:
                yield str(item["digest"]), _Found(document, kind or variant), called

    def _is_ours(self, item: Mapping[str, Any]) -> tuple[bool, str]:
        stated = _object(item.get("platform") or {})
        if not stated:
            return True, ""
        if (stated.get("os"), stated.get("architecture")) == ("linux", architecture()):
            return True, str(stated.get("variant") or "")
        if stated.get("os") != "unknown":
            self._others.add(f"{stated.get('os')}/{stated.get('architecture')}")
        return False, ""

    def _image(self, found: _Found) -> ArchivedImage:
        described = _object(found.manifest["config"])
        data = self._blob(described)
        config = _object(parse(data, "the configuration"))
        layers = []
        for item in _objects(found.manifest["layers"]):
            kind = str(item.get("mediaType") or "")
            if "encrypted" in kind:
                raise bad("Its layers are encrypted.", "Save the image decrypted.")
            digest = _digest(item.get("digest"))
            size = item.get("size")
            layers.append((_path(digest), digest, size if isinstance(size, int) else -1))
        return _image(data, config, layers, found.names)

    def _blob(self, item: Mapping[str, Any]) -> bytes:
        digest = _digest(item.get("digest"))
        data = read_document(self._archive, _path(digest))
        algorithm, _, stated = digest.partition(":")
        if hashlib.new(algorithm, data).hexdigest() != stated:
            raise bad(
                f"The content of {digest[:23]}… does not match its digest.",
                "The archive was damaged or changed: write it again.",
                "image.digest",
            )
        return data


def _saved(archive: Archive, wanted: str) -> ArchivedImage:
    """Read what docker save wrote."""
    rows = _objects(parse(read_document(archive, "manifest.json"), "manifest.json"))
    found = [
        _Found(row, "", [name for name in row.get("RepoTags") or [] if isinstance(name, str)])
        for row in rows
    ]
    if not found:
        raise bad("It holds no image.")
    row = _choose(found, wanted)
    name = row.manifest.get("Config")
    files = row.manifest.get("Layers")
    if not isinstance(name, str) or not isinstance(files, list):
        raise bad("manifest.json names no configuration or no layers.")
    data = read_document(archive, name)
    stated = name.rpartition("/")[2].removesuffix(".json")
    if _HEX.match(stated) and hashlib.sha256(data).hexdigest() != stated:
        raise bad(
            f"The configuration {stated[:12]}… does not match its digest.",
            "The archive was damaged or changed: write it again.",
            "image.digest",
        )
    image = _image(
        data,
        _object(parse(data, shown(name))),
        [(str(file), _blob_digest(str(file)), -1) for file in files],
        row.names,
    )
    _check_platform(image.config)
    return image


def _blob_digest(file: str) -> str:
    match = re.fullmatch(r"blobs/(sha256)/([0-9a-f]{64})", file)
    return f"{match[1]}:{match[2]}" if match else ""


def _image(
    data: bytes,
    config: Mapping[str, Any],
    layers: list[tuple[str, str, int]],
    names: list[str],
) -> ArchivedImage:
    ids = _object(config.get("rootfs") or {}).get("diff_ids")
    if not isinstance(ids, list) or len(ids) != len(layers):
        raise bad("Its configuration does not say what its layers contain.")
    if len(layers) > MOST_LAYERS:
        raise bad(f"It has more than {MOST_LAYERS:,} layers.")
    return ArchivedImage(
        hashlib.sha256(data).hexdigest(),
        config,
        tuple(
            ArchivedLayer(file, digest, size, _digest(diff))
            for (file, digest, size), diff in zip(layers, ids, strict=True)
        ),
        tuple(names),
    )


def _choose(found: list[_Found], wanted: str) -> _Found:
    if wanted:
        named = [item for item in found if wanted in item.names]
        if not named:
            known = ", ".join(shown(name) for item in found for name in item.names) or "no names"
            raise bad(
                f"It holds no image called {shown(wanted)}, but {known}.", "", "image.unnamed"
            )
        found = named
    order = _VARIANTS.get(architecture(), ("",))
    best = min(_rank(item.variant, order) for item in found)
    found = [item for item in found if _rank(item.variant, order) == best]
    if len(found) > 1:
        names = [shown(name) for item in found for name in item.names[:1]]
        raise bad(
            f"It holds {len(found)} images: {', '.join(names[:10]) or 'without names'}.",
            "Save one image to an archive of its own.",
            "image.several",
        )
    return found[0]


def _rank(variant: str, order: tuple[str, ...]) -> int:
    return order.index(variant) if variant in order else len(order)


def _check_platform(config: Mapping[str, Any]) -> None:
    seen = (config.get("os") or "linux", config.get("architecture") or architecture())
    if seen != ("linux", architecture()):
        raise _no_platform({f"{seen[0]}/{seen[1]}"})


def _no_platform(others: set[str]) -> Exception:
    mine = f"linux/{architecture()}"
    if not others:
        return bad("It holds no image.")
    return bad(
        f"It holds no image for {mine}, only for {', '.join(map(shown, sorted(others)))}.",
        f"Save the image for {mine}, or run on a host of its platform.",
        "image.platform",
    )


def _digest(value: object) -> str:
    if not isinstance(value, str) or not _DIGEST.match(value):
        raise bad(f"{shown(str(value))} in it is no digest.", "", "image.digest")
    return value


def _path(digest: str) -> str:
    return "blobs/" + digest.replace(":", "/")


def _object(value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise bad("A document in it is not an object.")
    return value


def _objects(value: object) -> list[Mapping[str, Any]]:
    if not isinstance(value, list):
        raise bad("A document in it has no list where one belongs.")
    return [_object(item) for item in value]
