"""`qualityhub doctor --conformance`: hold a provider to its contract on this machine."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

if TYPE_CHECKING:
    from qualityhub.engine.sandbox.conformance import Held

_INDENT = 6


def run(provider: Literal["auto", "bwrap", "container"], home: Path, form: str) -> int:
    """Run every check against a provider and print how each went.

    Args:
        provider: As for ``--sandbox``.
        home: Data folder.
        form: ``text`` prints each line as it is known, ``json`` one document at the end.

    Returns:
        0 where everything held, soft limits included; 1 where something did not.

    Raises:
        SandboxUnavailableError: The provider cannot run here.
        MachineryError: It failed where it should have run a command.
    """
    from qualityhub.engine.sandbox.conformance import examine, kit_for
    from qualityhub.engine.sandbox.select import select_sandbox

    sandbox = select_sandbox(provider, home)
    try:
        with tempfile.TemporaryDirectory(prefix="qh-conformance-") as scratch:
            # Isolation must hold although anyone may enter.
            Path(scratch).chmod(0o755)
            if form == "text":
                click.echo(f"what the {sandbox.name} provider holds here:")
            kit = kit_for(sandbox, Path(scratch))
            seen = examine(kit, on_held=_tell if form == "text" else None)
    finally:
        sandbox.close()
    counts = {
        outcome: sum(held.outcome == outcome for held in seen)
        for outcome in ("pass", "soft", "fail")
    }
    if form == "json":
        checks = [
            {"name": h.name, "title": h.title, "outcome": h.outcome, "reason": h.reason}
            for h in seen
        ]
        document = {"ok": not counts["fail"], "provider": sandbox.name, "checks": checks}
        click.echo(json.dumps(document))
    else:
        click.echo(f"{counts['pass']} pass, {counts['soft']} soft, {counts['fail']} fail")
    return 1 if counts["fail"] else 0


def _tell(held: Held) -> None:
    click.echo(f"{held.outcome:<{_INDENT}}{held.title}  ({held.name})")
    if held.reason:
        # What a check saw of a hostile program may hold anything.
        click.echo(f"{'':<{_INDENT}}-> {ascii(held.reason)[1:-1]}")
