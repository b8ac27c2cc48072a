"""Choose a provider, and say in one line why where there is none."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

from qualityhub.engine.errors import SandboxUnavailableError
from qualityhub.engine.sandbox.bwrap import BwrapSandbox
from qualityhub.engine.sandbox.container import ContainerSandbox
from qualityhub.engine.sandbox.explain import explained
from qualityhub.engine.sandbox.hostfacts import look_at_host
from qualityhub.engine.sandbox.port import Capability, Sandbox

Kind = Literal["auto", "bwrap", "container"]


def select_sandbox(kind: Kind, home: Path) -> Sandbox:
    """Return a provider that works here.

    ``auto`` takes bubblewrap where it can run, else a container engine that answers.

    Args:
        kind: What the caller asked for.
        home: Our data folder.

    Raises:
        SandboxUnavailableError: None works; message and hint say why and what to do.
    """
    reasons: list[Capability] = []
    for sandbox in _candidates(kind, home):
        seen = sandbox.capability()
        if seen.usable:
            return sandbox
        sandbox.close()
        reasons.append(explained(seen, look_at_host()))
    why = "; ".join(f"{seen.provider}: {seen.reason}" for seen in reasons)
    raise SandboxUnavailableError(
        "sandbox.unavailable",
        f"Nothing here can run foreign code safely ({why}).",
        next((seen.remedy for seen in reasons if seen.remedy), ""),
    )


def capabilities(home: Path) -> list[Capability]:
    """Return what every provider can do here, in the order that ``auto`` takes them."""
    host = look_at_host()
    found = []
    for sandbox in _candidates("auto", home):
        found.append(explained(sandbox.capability(), host))
        sandbox.close()
    return found


def _candidates(kind: Kind, home: Path) -> list[Sandbox]:
    candidates: list[Sandbox] = []
    if kind == "bwrap" or (kind == "auto" and sys.platform.startswith("linux")):
        candidates.append(BwrapSandbox(home))
    if kind in {"container", "auto"}:
        candidates.append(ContainerSandbox(home))
    return candidates
