"""The block that ends a start: where to go, and how to get out again."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from qualityhub.standalone.console import Console

_RULE = "─" * 78


def ready(console: Console, url: str, sign_in: str, home: Path, seconds: float) -> str:
    """Return the block for a hub that is ready.

    Args:
        console: Decides about colours.
        url: Where the hub answers.
        sign_in: One-time link.
        home: The data folder.
        seconds: How long the start took.
    """
    rows = (
        ("Open", url),
        ("Sign in (once)", console.bold(sign_in)),
        ("Data folder", str(home)),
        ("Stop", "Ctrl-C here, or `qualityhub stop` elsewhere"),
    )
    return _block(
        console.bold(f"QualityHub is ready ({seconds:.1f} s)"),
        rows,
        "Everything runs on this single host: fine to try and for small teams; see\n"
        "docs/operations/standalone.md for what changes beyond that.",
    )


def demo(
    console: Console, *, sign_in: str, url: str, gate: str, status: int, seconds: float
) -> str:
    """Return the block that ends the demonstration's loading.

    Args:
        console: Decides about colours.
        sign_in: One-time link that was not shown before.
        url: Where the hub answers.
        gate: Public id of the gate; empty where there is none.
        status: Exit status of the loader.
        seconds: How long it took.
    """
    rows = [("Sign in (once)", console.bold(sign_in))]
    if status != 0:
        return _block(
            console.bold(f"The demonstration was not loaded completely (status {status})"),
            tuple(rows),
            "What went wrong is in the lines above; the hub itself runs on.",
        )
    rows += [("Domains", f"{url}/"), ("Inspections", f"{url}/inspections/")]
    if gate:
        rows.append(("Gate", f"{url}/gates/{gate}/"))
    return _block(
        console.bold(f"The demonstration is loaded ({seconds:.0f} s)"),
        tuple(rows),
        "See which environments were admitted or rejected and why, with evidence, and the\n"
        "gate that keeps a checkpoint back. Stop with Ctrl-C.",
    )


def _block(title: str, rows: tuple[tuple[str, str], ...], note: str) -> str:
    width = max(len(name) for name, _ in rows)
    lines = [f"  {name:<{width}}  {value}" for name, value in rows]
    return "\n".join(["", _RULE, f"  {title}", "", *lines, "", *_indented(note), _RULE, ""])


def _indented(note: str) -> list[str]:
    return [f"  {line}" for line in note.splitlines()]
