"""Find the container engine that answers, Docker or Podman, through the Docker API."""

from __future__ import annotations

import os
import socket
import threading
import time
from pathlib import Path

import docker
from docker.errors import DockerException

_ASK_AGAIN_S = 20.0
_ANSWER_S = 5
_WORK_S = 1800

_lock = threading.Lock()
_seen: dict[str, tuple[float, str]] = {}


def addresses() -> list[str]:
    """Return where an engine may listen: ``DOCKER_HOST`` alone if set, else the usual sockets."""
    named = os.environ.get("DOCKER_HOST")
    if named:
        return [named]
    folder = os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    sockets = [
        "/var/run/docker.sock",
        f"{folder}/docker.sock",
        f"{folder}/podman/podman.sock",
        "/run/podman/podman.sock",
        str(Path.home() / ".docker/run/docker.sock"),
    ]
    return [f"unix://{path}" for path in sockets if os.access(path, os.R_OK | os.W_OK)]


def engine_address() -> str:
    """Return the address of an engine that answers, empty where none does; asked rarely."""
    key = "|".join(addresses())
    with _lock:
        asked, found = _seen.get(key, (float("-inf"), ""))
        if time.monotonic() - asked < _ASK_AGAIN_S:
            return found
        found = next((address for address in addresses() if _answers(address)), "")
        _seen[key] = (time.monotonic(), found)
        return found


def _answers(address: str) -> bool:
    if address.startswith("unix://") and not _listens(address.removeprefix("unix://")):
        return False
    try:
        client = docker.DockerClient(base_url=address, timeout=_ANSWER_S)
    except (DockerException, ValueError):
        return False
    try:
        return bool(client.ping())
    except (DockerException, OSError):
        return False
    finally:
        client.close()


def _listens(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(_ANSWER_S)
        try:
            probe.connect(path)
        except OSError:
            return False
        return True


def connect(address: str, *, answer_s: int = _WORK_S) -> docker.DockerClient:
    """Return a client.

    Args:
        address: From :func:`engine_address`.
        answer_s: Seconds that the engine may be silent; long by default, for builds.

    Raises:
        DockerException: The engine does not answer.
    """
    return docker.DockerClient(base_url=address, version="auto", timeout=answer_s)
