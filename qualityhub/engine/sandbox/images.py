"""Build an image once through the Docker API and keep its files as an immutable tree.

From then on a trial starts from the tree; the engine is not needed again.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

import docker
from docker.errors import APIError, DockerException, ImageNotFound
from docker.utils import parse_repository_tag

from qualityhub.engine.digest import digest_json
from qualityhub.engine.errors import SandboxUnavailableError
from qualityhub.engine.sandbox import idmaps, store
from qualityhub.engine.sandbox.engine import connect, engine_address
from qualityhub.engine.sandbox.trees import unpack_stream

KIND = "images"
LOG_CHARACTERS = 8_000
_BUILDS = "builds"
_MOST_LINKS = 40
_NO_IMAGE = (
    "manifest unknown",
    "pull access denied",
    "no such host",
    "connection refused",
    "initializing source",
    "unable to copy from source",
    "error pulling",
    "toomanyrequests",
    "no such image",
    "tls handshake",
    "i/o timeout",
)
_NO_NETWORK = (
    "temporary failure resolving",
    "temporary failure in name resolution",
    "could not resolve",
    "network is unreachable",
    "failed to establish a new connection",
    "no route to host",
)


@dataclass(frozen=True, slots=True)
class ImageTree:
    """An exported image.

    Attributes:
        path: Host folder that is its ``/``.
        digest: Of the image as the engine names it.
        env: Variables it sets.
        workdir: Working directory, empty for none.
        user: As the image says, empty for root.
        log: Tail of the build's output.
    """

    path: Path
    digest: str
    env: dict[str, str]
    workdir: str
    user: str
    log: str = ""


@dataclass(frozen=True, slots=True)
class ImageFailed:
    """There is no image.

    Attributes:
        reason: One sentence.
        log: Tail of the build's output.
        host_fault: True where this host is at fault (no registry, no network), not the Dockerfile.
        would_need: What would make it possible, where the host is at fault.
    """

    reason: str
    log: str = ""
    host_fault: bool = False
    would_need: str = ""


def engine_available() -> bool:
    """Whether a container engine answers."""
    return bool(engine_address())


def build_image(
    context: Path,
    dockerfile: str,
    home: Path,
    on_progress: Callable[[str], None] | None = None,
    *,
    refresh: bool = False,
) -> ImageTree | ImageFailed:
    """Return the tree of a built image, from the store where the same context was built before.

    Args:
        context: Build context.
        dockerfile: Path of the Dockerfile relative to it.
        home: Our data folder.
        on_progress: Told one line at each step.
        refresh: Build again, without the engine's cache.

    Raises:
        SandboxUnavailableError: No engine answers.
        MachineryError: The exported image could not be stored.
    """
    return _remembered(
        digest_json("image-context", [_context_rows(context), dockerfile]),
        home,
        lambda client: _build(client, context, dockerfile, refresh=refresh),
        on_progress or (lambda _: None),
        refresh=refresh,
    )


def fetch_image(
    name: str,
    home: Path,
    on_progress: Callable[[str], None] | None = None,
    *,
    refresh: bool = False,
) -> ImageTree | ImageFailed:
    """Return the tree of a published image, pulled where the engine does not have it.

    Args:
        name: As in a FROM line.
        home: Our data folder.
        on_progress: Told one line at each step.
        refresh: Pull although it is here.

    Raises:
        SandboxUnavailableError: No engine answers.
        MachineryError: The exported image could not be stored.
    """
    return _remembered(
        digest_json("image-name", name),
        home,
        lambda client: _pull(client, name, refresh=refresh),
        on_progress or (lambda _: None),
        refresh=refresh,
    )


def is_program(tree: Path, path: str) -> bool:
    """Whether a path of an image is an executable file; links are resolved inside the image."""
    found = resolve_inside(tree, path)
    if found is None:
        return False
    mode = found.lstat().st_mode
    return stat.S_ISREG(mode) and bool(mode & 0o111)


def resolve_inside(tree: Path, path: str) -> Path | None:
    """Return where a path of an image really lies, as if the tree were ``/``; None for nowhere."""
    waiting = list(PurePosixPath(path).parts[1:])
    here: list[str] = []
    links = 0
    while waiting:
        part = waiting.pop(0)
        if part == "..":
            here = here[:-1]
            continue
        place = tree.joinpath(*here, part)
        try:
            mode = place.lstat().st_mode
        except OSError:
            return None
        if not stat.S_ISLNK(mode):
            here.append(part)
            continue
        links += 1
        if links > _MOST_LINKS:
            return None
        target = PurePosixPath(place.readlink())
        if target.is_absolute():
            here = []
        waiting = [item for item in target.parts if item != "/"] + waiting
    return tree.joinpath(*here)


@dataclass(frozen=True, slots=True)
class _Built:
    """An image that the engine has."""

    id: str
    log: str


def _remembered(
    question: str,
    home: Path,
    make: Callable[[docker.DockerClient], _Built | ImageFailed],
    tell: Callable[[str], None],
    *,
    refresh: bool,
) -> ImageTree | ImageFailed:
    path = home / KIND / _BUILDS / f"{store.short(question)}.json"
    with store.locked(home, _BUILDS, question):
        if not refresh:
            known = store.read_json(path)
            tree = _stored(known["digest"], home) if known is not None else None
            if tree is not None:
                return tree
        with _client() as client:
            tell("building or fetching the image")
            built = make(client)
            if isinstance(built, ImageFailed):
                return built
            tell("exporting the image")
            tree = _export(client, built, home)
        store.write_json(path, {"digest": tree.digest})
        return tree


def _stored(digest: str, home: Path) -> ImageTree | None:
    found = store.lookup(home, KIND, digest)
    if found is None:
        return None
    path, facts = found
    return ImageTree(
        path, digest, dict(facts["env"]), facts["workdir"], facts["user"], facts["log"]
    )


@contextmanager
def _client() -> Iterator[docker.DockerClient]:
    address = engine_address()
    if not address:
        raise SandboxUnavailableError(
            "engine.unavailable",
            "no container engine answers",
            "start Docker or Podman's service, or set DOCKER_HOST",
        )
    try:
        client = connect(address)
    except DockerException as error:
        raise SandboxUnavailableError(
            "engine.unavailable", f"the container engine does not answer: {error}"
        ) from error
    try:
        yield client
    finally:
        client.close()


def _build(
    client: docker.DockerClient, context: Path, dockerfile: str, *, refresh: bool
) -> _Built | ImageFailed:
    log = ""
    found = ""
    try:
        for item in client.api.build(
            path=str(context),
            dockerfile=dockerfile,
            rm=True,
            forcerm=True,
            nocache=refresh,
            decode=True,
        ):
            text = str(item.get("stream") or item.get("error") or "")
            log = (log + text)[-LOG_CHARACTERS * 4 :]
            if "error" in item:
                return _refused(str(item["error"]), log)
            match = re.search(r"(?:Successfully built |sha256:)([0-9a-f]{12,64})", text)
            if match:
                found = match[1]
            aux = item.get("aux")
            if isinstance(aux, dict) and aux.get("ID"):
                found = str(aux["ID"])
    except (APIError, DockerException, OSError) as error:
        return _refused(str(error), log)
    if not found:
        return ImageFailed("the engine named no image", log[-LOG_CHARACTERS:], host_fault=True)
    return _Built(found, log[-LOG_CHARACTERS:])


def _refused(message: str, log: str) -> ImageFailed:
    tail = log[-LOG_CHARACTERS:]
    seen = (message + "\n" + log[-4000:]).lower()
    line = re.sub(r"\s+", " ", message).strip()[:300]
    if any(sign in seen for sign in _NO_IMAGE):
        return ImageFailed(
            f"an image could not be fetched: {line}",
            tail,
            host_fault=True,
            would_need="a registry that has the image, or the image loaded into the engine",
        )
    if any(sign in seen for sign in _NO_NETWORK):
        return ImageFailed(
            f"the build had no network: {line}",
            tail,
            host_fault=True,
            would_need="a network for builds in the container engine",
        )
    return ImageFailed(f"the image does not build: {line}", tail)


def _pull(client: docker.DockerClient, name: str, *, refresh: bool) -> _Built | ImageFailed:
    try:
        if not refresh:
            try:
                return _Built(str(client.images.get(name).id), "")
            except ImageNotFound:
                pass
        repository, tag = parse_repository_tag(name)
        image = client.images.pull(repository, tag=tag or None)
        return _Built(str(image.id), "")
    except (DockerException, OSError) as error:
        line = re.sub(r"\s+", " ", str(error)).strip()[:300]
        return ImageFailed(
            f"the image {name} could not be fetched: {line}",
            host_fault=True,
            would_need=f"a registry that has {name}, or the image loaded into the engine",
        )


def _export(client: docker.DockerClient, built: _Built, home: Path) -> ImageTree:
    facts = client.images.get(built.id).attrs
    config = facts.get("Config") or {}
    digest = digest_json("image", str(facts["Id"]).removeprefix("sha256:"))
    tree = _stored(digest, home)
    if tree is not None:
        return tree
    env = dict(
        cast("tuple[str, str]", tuple(item.split("=", 1)))
        for item in config.get("Env") or []
        if "=" in item
    )
    container = client.api.create_container(facts["Id"], command=["/bin/true"])
    try:
        with store.fresh(home, KIND) as place:
            chunks = client.api.export(container["Id"])
            stream = cast("IO[bytes]", io.BufferedReader(_Chunks(iter(chunks))))
            unpack_stream(stream, place, idmaps.current().owner)
            path = store.publish(
                home,
                KIND,
                digest,
                place,
                {
                    "image": facts["Id"],
                    "env": env,
                    "workdir": config.get("WorkingDir") or "",
                    "user": config.get("User") or "",
                    "log": built.log,
                },
            )
    finally:
        client.api.remove_container(container["Id"], force=True)
    return ImageTree(
        path, digest, env, config.get("WorkingDir") or "", config.get("User") or "", built.log
    )


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


def _context_rows(context: Path) -> list[list[str | int]]:
    rows: list[list[str | int]] = []
    for here, folders, files in os.walk(context):
        folders.sort()
        for name in sorted((*files, *folders)):
            path = Path(here) / name
            mode = path.lstat().st_mode
            relative = str(path.relative_to(context))
            if stat.S_ISLNK(mode):
                rows.append([relative, "link", 0, str(path.readlink())])
            elif stat.S_ISREG(mode):
                with path.open("rb") as file:
                    content = hashlib.file_digest(file, "sha256").hexdigest()
                rows.append([relative, "file", mode & 0o777, content])
            elif stat.S_ISDIR(mode):
                rows.append([relative, "folder", mode & 0o777, ""])
    return rows
