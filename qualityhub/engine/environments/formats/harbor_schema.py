"""The shape of Harbor's ``task.toml``."""

from __future__ import annotations

import re
from typing import Any

from qualityhub.engine.environments.tables import (
    ANY,
    COUNT,
    FLAG,
    NUMBER,
    POSITIVE,
    TABLE,
    TEXT,
    TEXT_TABLE,
    TEXTS,
    Kind,
    Several,
    Shape,
    choice,
    either,
)

NETWORK = choice("no-network", "public", "allowlist")
USER = either(TEXT, COUNT)
_SIZE = re.compile(r"(?P<number>\d{1,9}(?:\.\d+)?)\s*(?P<unit>[KMGT]?)i?B?", re.IGNORECASE)
_MEBI = {"": 1 / (1024 * 1024), "K": 1 / 1024, "M": 1, "G": 1024, "T": 1024 * 1024}
SIZE = Kind(
    'a size such as "2G"', lambda value: isinstance(value, str) and bool(_SIZE.fullmatch(value))
)

_HEALTHCHECK: Shape = {
    "command": TEXT,
    "interval_sec": NUMBER,
    "timeout_sec": NUMBER,
    "start_period_sec": NUMBER,
    "start_interval_sec": NUMBER,
    "retries": COUNT,
}
_ARTIFACTS = Several(
    {"source": TEXT, "destination": TEXT, "exclude": TEXTS, "service": TEXT}, instead=TEXT
)
_AGENT: Shape = {
    "timeout_sec": POSITIVE,
    "user": USER,
    "network_mode": NETWORK,
    "allowed_hosts": TEXTS,
}
_ENVIRONMENT: Shape = {
    "network_mode": NETWORK,
    "allowed_hosts": TEXTS,
    "build_timeout_sec": POSITIVE,
    "docker_image": TEXT,
    "os": choice("linux", "windows"),
    "cpus": POSITIVE,
    "memory_mb": COUNT,
    "storage_mb": COUNT,
    "gpus": COUNT,
    "gpu_types": TEXTS,
    "tpu": {"type": TEXT, "topology": TEXT},
    "mcp_servers": Several(
        {
            "name": TEXT,
            "transport": choice("sse", "stdio", "streamable-http"),
            "url": TEXT,
            "command": TEXT,
            "args": TEXTS,
            "headers": TEXT_TABLE,
        }
    ),
    "env": TEXT_TABLE,
    "skills_dir": TEXT,
    "healthcheck": _HEALTHCHECK,
    "workdir": TEXT,
    "allow_internet": FLAG,
    "memory": SIZE,
    "storage": SIZE,
}
_VERIFIER: Shape = {
    "timeout_sec": POSITIVE,
    "env": TEXT_TABLE,
    "user": USER,
    "environment_mode": choice("shared", "separate"),
    "environment": _ENVIRONMENT,
    "collect": Several({"command": TEXT, "service": TEXT, "timeout_sec": POSITIVE, "user": USER}),
    "network_mode": NETWORK,
    "allowed_hosts": TEXTS,
}
SHAPE: Shape = {
    "schema_version": TEXT,
    "version": TEXT,
    "source": TEXT,
    "multi_step_reward_strategy": choice("mean", "final"),
    "artifacts": _ARTIFACTS,
    "task": {
        "name": TEXT,
        "version": TEXT,
        "description": TEXT,
        "authors": Several({"name": TEXT, "email": TEXT}),
        "keywords": TEXTS,
    },
    "metadata": TABLE,
    "agent": _AGENT,
    "solution": {"env": TEXT_TABLE},
    "verifier": _VERIFIER,
    "environment": _ENVIRONMENT,
    "steps": Several(
        {
            "name": TEXT,
            "agent": _AGENT,
            "verifier": _VERIFIER,
            "min_reward": either(NUMBER, TABLE),
            "healthcheck": _HEALTHCHECK,
            "artifacts": ANY,
        }
    ),
}


def mebibytes(size: str) -> int:
    """Return a size such as ``2G`` in MiB."""
    match = _SIZE.fullmatch(size)
    if match is None:
        return 0
    return int(float(match["number"]) * _MEBI[match["unit"].upper()])


def memory_mb(environment: dict[str, Any]) -> int | None:
    """Return the memory a task asks for in MiB, or None."""
    if "memory_mb" in environment:
        return int(environment["memory_mb"]) or None
    if "memory" in environment:
        return mebibytes(environment["memory"]) or None
    return None
