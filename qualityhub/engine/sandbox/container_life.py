"""Containers come and go: created with patience, removed for certain, none left by the dead."""

from __future__ import annotations

import contextlib
import os
import platform
import time
from pathlib import Path
from typing import Any

import docker
from docker.errors import APIError, DockerException, NotFound

LABEL = "qualityhub.owner"
_PATIENCE_S = 60.0
_PAUSE_S = 0.2
_NO_IDS = "enough available IDs"
_REMOVALS = 10


def owner() -> str:
    """Return who we are: this process, in words that no later one has."""
    return f"{_place()} {os.getpid()} {_started(os.getpid())}"


def create(client: docker.DockerClient, config: dict[str, Any]) -> str:
    """Create a container that is marked as ours and return its id.

    Engines that give each container a range of user ids have only so many: we wait for one.

    Raises:
        DockerException: The engine does not.
    """
    config = {**config, "Labels": {LABEL: owner()}}
    until = time.monotonic() + _PATIENCE_S
    while True:
        try:
            seen = client.api.create_container_from_config(config)  # type: ignore[no-untyped-call]
            return str(seen["Id"])
        except APIError as error:
            if _NO_IDS not in str(error) or time.monotonic() > until:
                raise
        time.sleep(_PAUSE_S)


def remove(client: docker.DockerClient, container: str) -> bool:
    """Kill and remove a container and return whether it is gone.

    Engines that are still tidying up are asked again.
    """
    for turn in range(_REMOVALS):
        try:
            client.api.remove_container(container, force=True, v=True)
        except NotFound:
            return True
        except (OSError, ValueError):
            # Nobody answers: that is not for us to sit out.
            return False
        except DockerException:
            time.sleep(_PAUSE_S * turn)
        else:
            return True
    return False


def sweep(client: docker.DockerClient) -> None:
    """Remove containers of processes on this host that died without doing so."""
    with contextlib.suppress(DockerException, OSError):
        for seen in client.api.containers(all=True, filters={"label": LABEL}):
            words = str(seen["Labels"].get(LABEL)).split(" ")
            if len(words) != 3 or words[0] != _place() or not words[1].isdigit():
                continue
            if _started(int(words[1])) != words[2]:
                remove(client, str(seen["Id"]))


def _place() -> str:
    """Name this host and its table of processes."""
    try:
        table = os.readlink("/proc/self/ns/pid")  # noqa: PTH115
    except OSError:
        table = ""
    return f"{platform.node()}/{table}".replace(" ", "-")


def _started(pid: int) -> str:
    """Return when a process started, in the kernel's ticks; empty where it is gone or unknown."""
    try:
        # The name of a process may hold spaces and brackets; what follows the last one may not.
        return Path(f"/proc/{pid}/stat").read_text(encoding="latin1").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
