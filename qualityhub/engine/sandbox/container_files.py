"""Files into a container that does not run yet, and out of one that no longer does."""

from __future__ import annotations

import contextlib
import io
import json
import os
import stat
import tarfile
import tempfile
import time
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import docker
from docker.errors import APIError, NotFound

from qualityhub.engine.sandbox import container_shim as shim
from qualityhub.engine.sandbox.images import resolve_inside
from qualityhub.engine.sandbox.port import Command, Mount
from qualityhub.engine.sandbox.trees import unpack_stream

_IN_MEMORY = 16 * 1024 * 1024
# Go's file modes: what is not a plain file, and a link.
_NOT_PLAIN = 0x8F280000
_LINK = 1 << 27
# A header, the content and its padding: no more of an archive is needed for one file.
_AROUND = 2048


def is_bound(mount: Mount) -> bool:
    """Whether the engine mounts it; what only we may read, and what may be written, is copied."""
    if mount.mode != "ro" or mount.source is None:
        return False
    mode = mount.source.stat().st_mode
    return bool(mode & 0o004) and (bool(mode & 0o001) or not stat.S_ISDIR(mode))


def lay_out(
    client: docker.DockerClient, container: str, command: Command, *, uid: int, bound: bool
) -> int:
    """Put what is not mounted into the container's own layer, which outlives its processes.

    Args:
        client: The engine.
        container: Created, not started.
        command: What will run there.
        uid: Owner of what the command may write.
        bound: Whether read-only folders are mounted by the engine.

    Returns:
        Bytes of content put there.
    """
    copied = [mount for mount in command.mounts if not (bound and is_bound(mount))]
    copied.sort(key=lambda mount: mount.target.count("/"))
    hidden: dict[str, str] = {}
    with tempfile.SpooledTemporaryFile(_IN_MEMORY) as file:
        with tarfile.open(fileobj=file, mode="w", format=tarfile.GNU_FORMAT) as out:
            _folder(out, shim.FOLDER, 0o700, uid)
            for number, mount in enumerate(copied):
                target = mount.target
                if command.base is not None and _is_filled(command.base, target):
                    hidden[f"{shim.FOLDER}/{number}"] = target
                    target = f"{shim.FOLDER}/{number}"
                _add(out, mount, target, uid)
            if command.stdin:
                _file(out, shim.stdin_file(), command.stdin, uid)
            _file(out, shim.START, shim.script(command, hidden), uid)
            size = out.offset
        # Readers stop at the end mark, and what is padded after it may then find nobody.
        file.truncate(size + 2 * tarfile.BLOCKSIZE)
        file.seek(0)
        client.api.put_archive(container, "/", file)
    return size


def _is_filled(base: Path, target: str) -> bool:
    """Whether an image has something at a path that a folder of ours must cover."""
    here = resolve_inside(base, target)
    if here is None or not here.is_dir():
        return False
    with os.scandir(here) as entries:
        return next(entries, None) is not None


def _add(out: tarfile.TarFile, mount: Mount, target: str, uid: int) -> None:
    def own(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        entry.uid = entry.gid = uid if mount.mode != "ro" else 0
        entry.uname = entry.gname = ""
        if mount.mode == "ro":
            entry.mode |= 0o555 if entry.isdir() else 0o444
        return entry if entry.isdir() or entry.isreg() or entry.issym() else None

    if mount.source is None:
        # Whoever the command becomes may write there.
        mode = 0o1777 if mount.target in {"/tmp", "/var/tmp"} else 0o777  # noqa: S108
        _folder(out, target, mode, uid)
    else:
        out.add(mount.source, arcname=target.lstrip("/"), filter=own)


def _folder(out: tarfile.TarFile, path: str, mode: int, uid: int) -> None:
    entry = _entry(path, mode, uid)
    entry.type = tarfile.DIRTYPE
    out.addfile(entry)


def _file(out: tarfile.TarFile, path: str, content: bytes, uid: int) -> None:
    entry = _entry(path, 0o600, uid)
    entry.size = len(content)
    out.addfile(entry, io.BytesIO(content))


def _entry(path: str, mode: int, uid: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(path.lstrip("/"))
    entry.mode, entry.mtime = mode, int(time.time())
    entry.uid = entry.gid = uid
    return entry


class Readback:
    """Reads files of one container whose processes are all dead."""

    def __init__(self, client: docker.DockerClient, container: str) -> None:
        """Prepare; nothing is asked yet."""
        self._client = client
        self._container = container
        self._folders: dict[str, bool] = {"/": True}

    def files(self, paths: tuple[str, ...], most: int) -> Iterator[tuple[str, bytes]]:
        """Yield the first ``most`` bytes of those paths that are regular files; no link counts."""
        for path in paths:
            content = self.file(path, most)
            if content is not None:
                yield path, content

    def file(self, path: str, most: int) -> bytes | None:
        """Return the first bytes of a regular file, or None where there is none."""
        if ".." in PurePosixPath(path).parts or not self._is_folder(
            str(PurePosixPath(path).parent)
        ):
            return None
        with contextlib.suppress(NotFound, APIError, tarfile.TarError):
            pieces, seen = self._client.api.get_archive(self._container, path)
            if int(seen.get("mode") or 0) & _NOT_PLAIN:
                return None
            with tempfile.SpooledTemporaryFile(_IN_MEMORY) as file:
                for piece in pieces:
                    file.write(piece)
                    if file.tell() > most + _AROUND:
                        break
                file.seek(0)
                with tarfile.open(fileobj=file, mode="r|") as archive:
                    entry = archive.next()
                    content = archive.extractfile(entry) if entry and entry.isreg() else None
                    return content.read(most) if content is not None else None
        return None

    def keep(self, path: str, target: Path) -> None:
        """Copy a folder of the container to the host."""
        pieces, _ = self._client.api.get_archive(self._container, path)
        with tempfile.TemporaryFile() as file:
            for piece in pieces:
                file.write(piece)
            file.seek(0)
            unpack_stream(file, target, -1, strip=PurePosixPath(path).name)

    def _is_folder(self, path: str) -> bool:
        """Whether a path is a folder and no part of it a link: the engine would follow that."""
        if path not in self._folders:
            mode = self._mode(path) if self._is_folder(str(PurePosixPath(path).parent)) else None
            self._folders[path] = mode is not None and not mode & _LINK
        return self._folders[path]

    def _mode(self, path: str) -> int | None:
        api = self._client.api
        answer = api.head(
            f"{api.base_url}/v{api.api_version}/containers/{self._container}/archive",
            params={"path": path},
            timeout=api.timeout,
        )
        said = answer.headers.get("X-Docker-Container-Path-Stat", "")
        if not answer.ok or not said:
            return None
        return int(json.loads(b64decode(said)).get("mode") or 0)


def measure(layer: Path, most: int) -> tuple[int, int]:
    """Return (bytes, entries) below a container's layer; stops counting beyond ``most`` entries.

    Foreign code changes the layer meanwhile: names vanish, and what is not reachable counts as
    more than anyone may have.
    """
    size = count = 0
    waiting = [str(layer)]
    while waiting and count <= most:
        here = waiting.pop()
        try:
            with os.scandir(here) as entries:
                for entry in entries:
                    count += 1
                    with contextlib.suppress(FileNotFoundError):
                        seen = entry.stat(follow_symlinks=False)
                        size += seen.st_blocks * 512
                        if stat.S_ISDIR(seen.st_mode):
                            waiting.append(entry.path)
        except FileNotFoundError:
            continue
        except OSError:
            return size, most + 1
    return size, count
