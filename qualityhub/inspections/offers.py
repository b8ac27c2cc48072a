"""What this host offers, found out once per worker; nothing of an environment runs for it."""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from pathlib import Path
from typing import Any

from django.conf import settings

from qualityhub.engine.errors import SandboxUnavailableError
from qualityhub.engine.sandbox.engine import engine_address
from qualityhub.engine.sandbox.interpreters import all_interpreters, default_interpreter
from qualityhub.engine.sandbox.select import select_sandbox
from qualityhub.inspections.needs import Offer

MIB = 1024 * 1024
_CGROUP_LIMITS = (
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
)


def host_offer(session: str) -> Offer:
    """Return what a worker on this host has.

    Args:
        session: Names this run of the worker.
    """
    kind: Any = settings.QH_SANDBOX  # Checked to be one of the kinds when it was read.
    provider, ownership = "", False
    try:
        sandbox = select_sandbox(kind, settings.QH_HOME)
    except SandboxUnavailableError:
        pass
    else:
        provider, ownership = sandbox.name, sandbox.capability().ownership
        sandbox.close()
    return Offer(
        session=session,
        arch=platform.machine(),
        provider=provider,
        ownership=ownership,
        engine=bool(engine_address()),
        gpus=len(list(Path("/dev").glob("nvidia[0-9]*"))),
        memory_mib=_memory_bytes() // MIB,
        cpus=_cpus(),
        pythons=tuple(
            sorted({default_interpreter().version, *(item.version for item in all_interpreters())})
        ),
        labels=dict(settings.QH_WORKER_LABELS),
    )


def _cpus() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory_bytes() -> int:
    """Return what this host has, or what its group may use where that is less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in _CGROUP_LIMITS:
        with suppress(OSError, ValueError):  # "max" is no number and no bound.
            total = min(total, int(Path(path).read_text(encoding="ascii")))
    return total
