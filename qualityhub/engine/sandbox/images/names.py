"""Names under which images were imported: they stand for an image where no engine is asked."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from qualityhub.engine.digest import digest_json
from qualityhub.engine.errors import InvalidInputError, NotFoundError
from qualityhub.engine.sandbox import store
from qualityhub.engine.sandbox.images.model import ImageTree, stored_image
from qualityhub.engine.sandbox.tarstream import shown

NAMES = "images/names"
_LONGEST = 300


@dataclass(frozen=True, slots=True)
class NamedImage:
    """A name and the image behind it.

    Attributes:
        name: Normalised.
        digest: Of the image.
        image: Hex sha256 of its configuration.
        imported: When, seconds since 1970.
        bytes: That its tree takes on disk; 0 where it is gone.
        tree: None where it is gone.
    """

    name: str
    digest: str
    image: str
    imported: float
    bytes: int
    tree: ImageTree | None


def normal_name(name: str) -> str:
    """Return the one form of an image's name: no default registry, a tag or a digest.

    Raises:
        InvalidInputError: It is no name.
    """
    text = name.strip()
    if not text or len(text) > _LONGEST or not text.isascii() or not text.isprintable():
        raise InvalidInputError("image.name", f"{shown(name)} is no name of an image.")
    if any(char.isspace() for char in text) or text.startswith(("/", ".", "-")):
        raise InvalidInputError("image.name", f"{shown(name)} is no name of an image.")
    for prefix in ("docker.io/", "index.docker.io/", "localhost/"):
        text = text.removeprefix(prefix)
    text = text.removeprefix("library/")
    if "@" in text:
        return text
    head, _, tail = text.rpartition("/")
    if ":" not in tail:
        tail += ":latest"
    return f"{head}/{tail}" if head else tail


def remember_name(home: Path, name: str, digest: str, image: str) -> str:
    """Let a name stand for an image; another image under it loses it. Returns the normal form.

    Raises:
        InvalidInputError: It is no name.
    """
    name = normal_name(name)
    store.write_json(
        _path(home, name),
        {"name": name, "digest": digest, "image": image, "imported": time.time()},
    )
    return name


def named_image(home: Path, name: str) -> ImageTree | None:
    """Return the image that was imported under a name, or None."""
    try:
        known = store.read_json(_path(home, normal_name(name)))
    except InvalidInputError:
        return None
    return stored_image(home, known["digest"]) if known is not None else None


def forget_name(home: Path, name: str) -> str:
    """Take a name away; the image stays until the store needs its room.

    Raises:
        NotFoundError: No image was imported under it.
    """
    name = normal_name(name)
    try:
        _path(home, name).unlink()
    except FileNotFoundError as error:
        raise NotFoundError(
            "image.not_found",
            f"No image was imported as {shown(name)}.",
            "'qualityhub image list' shows those that were.",
        ) from error
    return name


def named_images(home: Path) -> list[NamedImage]:
    """Return every name, sorted."""
    found = []
    for path in sorted((home / NAMES).glob("*.json")):
        known = store.read_json(path)
        if known is None:
            continue
        seen = store.read_json(home / "images" / f"{store.short(known['digest'])}.json") or {}
        tree = stored_image(home, known["digest"])
        found.append(
            NamedImage(
                known["name"],
                known["digest"],
                known["image"],
                known["imported"],
                int(seen.get("bytes") or 0) if tree is not None else 0,
                tree,
            )
        )
    return sorted(found, key=lambda item: item.name)


def named_digests(home: Path) -> frozenset[str]:
    """Return the digests of images that have a name."""
    rows = (store.read_json(path) for path in (home / NAMES).glob("*.json"))
    return frozenset(str(row["digest"]) for row in rows if row is not None)


def _path(home: Path, name: str) -> Path:
    return home / NAMES / f"{store.short(digest_json('image-name', name))}.json"
