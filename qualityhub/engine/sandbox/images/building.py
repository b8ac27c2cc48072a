"""Build or fetch an image once through the Docker API and keep its files as an immutable tree.

From then on a trial starts from the tree; the engine is not needed again. A build is known by its
context and by the images that it starts from, as far as the engine can tell.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import docker
from docker.errors import APIError, DockerException, ImageNotFound
from docker.utils import parse_repository_tag

from qualityhub.engine.digest import digest_json
from qualityhub.engine.errors import SandboxUnavailableError
from qualityhub.engine.sandbox import store
from qualityhub.engine.sandbox.engine import connect, engine_address
from qualityhub.engine.sandbox.fromlines import base_images
from qualityhub.engine.sandbox.images.buildlog import BuildLog
from qualityhub.engine.sandbox.images.exporting import export_image
from qualityhub.engine.sandbox.images.model import ImageFailed, ImageTree, stored_image

BUILDS = "images/builds"
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
_LARGEST_DOCKERFILE = 4 * 1024 * 1024

Tell = Callable[[str], None]


def engine_available() -> bool:
    """Whether a container engine answers."""
    return bool(engine_address())


def build_image(
    context: Path,
    dockerfile: str,
    home: Path,
    on_progress: Tell | None = None,
    *,
    refresh: bool = False,
) -> ImageTree | ImageFailed:
    """Return the tree of a built image, from the store where the same context was built before.

    A build from an image that the engine has since replaced under the same name is made again.

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
    question = _of_context(context, dockerfile)
    log = BuildLog(on_progress or _ignore)
    return _remembered(
        question,
        home,
        lambda client: _build(client, context, dockerfile, log, refresh=refresh),
        log,
        on_progress or _ignore,
        refresh=refresh,
    )


def fetch_image(
    name: str, home: Path, on_progress: Tell | None = None, *, refresh: bool = False
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
    log = BuildLog(on_progress or _ignore)
    return _remembered(
        _of_name(name),
        home,
        lambda client: _pull(client, name, log, refresh=refresh),
        log,
        on_progress or _ignore,
        refresh=refresh,
    )


def known_build(context: Path, dockerfile: str, home: Path) -> ImageTree | None:
    """Return what the same context was built to before; no engine is asked."""
    return _known(_of_context(context, dockerfile), home, None)


def known_image(name: str, home: Path) -> ImageTree | None:
    """Return the image that was fetched under a name before; no engine is asked."""
    return _known(_of_name(name), home, None)


@dataclass(frozen=True, slots=True)
class _Built:
    """An image that the engine has, and the ids of the images that it was made from."""

    id: str
    bases: Mapping[str, str]


def _of_context(context: Path, dockerfile: str) -> str:
    return digest_json("image-context", [_context_rows(context), dockerfile])


def _of_name(name: str) -> str:
    return digest_json("image-name", name)


def _ignore(_: str) -> None:
    """Say nothing."""


def _remembered(
    question: str,
    home: Path,
    make: Callable[[docker.DockerClient], _Built | ImageFailed],
    log: BuildLog,
    tell: Tell,
    *,
    refresh: bool,
) -> ImageTree | ImageFailed:
    path = home / BUILDS / f"{store.short(question)}.json"
    log_path = path.with_suffix(".log.zst")
    with store.locked(home, "builds", question):
        if not refresh:
            address = engine_address()
            tree = _known(question, home, address)
            if tree is not None:
                return tree
        with _client() as client:
            tell("building or fetching the image")
            try:
                built = make(client)
            finally:
                kept = log.write(log_path)
            if isinstance(built, ImageFailed):
                return replace(built, log_file=kept)
            tell("exporting the image")
            tree = export_image(client, built.id, home)
        store.write_json(
            path,
            {
                "question": question,
                "digest": tree.digest,
                "bases": dict(built.bases),
                "log": log.tail,
            },
        )
        return replace(tree, log=log.tail, log_file=kept)


def _known(question: str, home: Path, address: str | None) -> ImageTree | None:
    """Return what is stored for a question, unless the engine now has other base images."""
    path = home / BUILDS / f"{store.short(question)}.json"
    known = store.read_json(path)
    if known is None or known.get("question") != question:
        return None
    if address and known["bases"] and _moved(address, known["bases"]):
        return None
    tree = stored_image(home, known["digest"])
    if tree is None:
        return None
    store.touch(path)
    log = path.with_suffix(".log.zst")
    return replace(tree, log=known["log"], log_file=log if log.exists() else None)


def _moved(address: str, bases: Mapping[str, str]) -> bool:
    try:
        client = connect(address)
    except DockerException:
        return False
    try:
        # An image that the engine no longer has says nothing about the build.
        return any(_id_of(client, name) not in {"", known} for name, known in bases.items())
    finally:
        client.close()


def _id_of(client: docker.DockerClient, name: str) -> str:
    try:
        return str(client.images.get(name).id)
    except (DockerException, OSError):
        return ""


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
    client: docker.DockerClient, context: Path, dockerfile: str, log: BuildLog, *, refresh: bool
) -> _Built | ImageFailed:
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
            text = log.take(item)
            if "error" in item:
                return _refused(str(item["error"]), log.tail)
            match = re.search(r"(?:Successfully built |sha256:)([0-9a-f]{12,64})", text)
            if match:
                found = match[1]
            aux = item.get("aux")
            if isinstance(aux, dict) and aux.get("ID"):
                found = str(aux["ID"])
    except (APIError, DockerException, OSError) as error:
        return _refused(str(error), log.tail)
    if not found:
        return ImageFailed("the engine named no image", log.tail, host_fault=True)
    text = _text(context / dockerfile)
    bases = {name: _id_of(client, name) for name in base_images(text)}
    return _Built(found, {name: known for name, known in bases.items() if known})


def _text(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(_LARGEST_DOCKERFILE).decode("utf-8", "replace")


def _refused(message: str, log: str) -> ImageFailed:
    seen = (message + "\n" + log[-4000:]).lower()
    line = re.sub(r"\s+", " ", message).strip()[:300]
    if any(sign in seen for sign in _NO_IMAGE):
        return ImageFailed(
            f"an image could not be fetched: {line}",
            log,
            host_fault=True,
            would_need="a registry that has the image, or the image loaded into the engine",
        )
    if any(sign in seen for sign in _NO_NETWORK):
        return ImageFailed(
            f"the build had no network: {line}",
            log,
            host_fault=True,
            would_need="a network for builds in the container engine",
        )
    return ImageFailed(f"the image does not build: {line}", log)


def _pull(
    client: docker.DockerClient, name: str, log: BuildLog, *, refresh: bool
) -> _Built | ImageFailed:
    try:
        if not refresh:
            try:
                known = str(client.images.get(name).id)
                return _Built(known, {name: known})
            except ImageNotFound:
                pass
        repository, tag = parse_repository_tag(name)
        for item in client.api.pull(repository, tag=tag or "latest", stream=True, decode=True):
            log.take(item)
            if "error" in item:
                return _not_fetched(name, str(item["error"]), log.tail)
        known = str(client.images.get(name).id)
    except (DockerException, OSError) as error:
        return _not_fetched(name, str(error), log.tail)
    return _Built(known, {name: known})


def _not_fetched(name: str, message: str, log: str) -> ImageFailed:
    line = re.sub(r"\s+", " ", message).strip()[:300]
    return ImageFailed(
        f"the image {name} could not be fetched: {line}",
        log,
        host_fault=True,
        would_need=f"a registry that has {name}, the image loaded into the engine, or an archive "
        f"of it (qualityhub image import ARCHIVE --name {name})",
    )


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
            elif stat.S_ISDIR(mode):
                rows.append([relative, "folder", mode & 0o777, ""])
            elif stat.S_ISREG(mode):
                with path.open("rb") as file:
                    content = hashlib.file_digest(file, "sha256").hexdigest()
                rows.append([relative, "file", mode & 0o777, content])
    return sorted(rows)
