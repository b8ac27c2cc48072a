"""Where the command line speaks: the document on stdout, everything else on stderr."""

from __future__ import annotations

import os
import shutil
import sys
import time
from typing import TYPE_CHECKING, TextIO

import click

from qualityhub.engine.errors import (
    InvalidInputError,
    MachineryError,
    QualityHubError,
    SandboxUnavailableError,
)
from qualityhub.engine.reports.safe import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

OK, FAILED, USAGE, PENDING, MACHINERY, INTERRUPTED = 0, 1, 2, 3, 4, 130
PRECEDENCE = (INTERRUPTED, USAGE, MACHINERY, FAILED, PENDING, OK)


def worst(codes: Iterable[int]) -> int:
    """Return the exit code that wins: 130, 2, 4, 1, 3, 0."""
    return min(codes, key=PRECEDENCE.index, default=OK)


def error_exit(error: QualityHubError) -> int:
    """Return the exit code of an error: 4 where our own parts failed, else 2."""
    return MACHINERY if isinstance(error, (SandboxUnavailableError, MachineryError)) else USAGE


def use_color(stream: TextIO, environ: Mapping[str, str] | None = None) -> bool:
    """Say whether to colour a stream: ``NO_COLOR`` and ``FORCE_COLOR`` win over the terminal."""
    environ = os.environ if environ is None else environ
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and environ.get("TERM") != "dumb"


def width() -> int:
    """Return the columns of the terminal, 100 where there is none."""
    return min(160, shutil.get_terminal_size((100, 24)).columns)


def people_size(size: float) -> str:
    """Return a number of bytes as people read it."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 10 else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} TiB"


def people_time(stamp: float) -> str:
    """Return a moment, seconds since 1970, in this host's own time."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(stamp))


def say(text: str) -> None:
    """Write a line to stderr."""
    click.echo(text, err=True, color=use_color(sys.stderr))


def note(text: str) -> None:
    """Write a line about how the work goes on, to people only."""
    if sys.stderr.isatty():
        say(text)


def say_error(error: QualityHubError) -> None:
    """Write an error and its way out to stderr, with foreign text made printable."""
    color = use_color(sys.stderr)
    head = click.style("error", fg="red", bold=True) if color else "error"
    click.echo(f"{head}: {printable(error.message, 2000)}", err=True, color=color)
    if error.hint:
        click.echo(f"hint: {printable(error.hint, 2000)}", err=True, color=color)


def deliver(document: str, output: Path | None) -> None:
    """Write the document to stdout, or whole or not at all to a file.

    Args:
        document: Text that ends with a line end.
        output: File to write; its folder must exist.

    Raises:
        InvalidInputError: The file cannot be written.
    """
    if output is None:
        # A terminal's encoding may lack a character; that is no reason to lose the report.
        if hasattr(sys.stdout, "reconfigure"):
            sys.stdout.reconfigure(errors="backslashreplace")
        click.echo(document, nl=False, color=True)
        return
    if output.exists() and not output.is_file():
        # A pipe or device such as /dev/stdout cannot be replaced, only written to.
        _write(output, output, document)
        return
    part = output.with_name(f".{output.name}.{os.getpid()}.part")
    try:
        _write(part, output, document)
        part.replace(output)
    finally:
        part.unlink(missing_ok=True)


def _write(path: Path, named: Path, document: str) -> None:
    try:
        path.write_text(document, encoding="utf-8", newline="\n")
    except OSError as error:
        raise InvalidInputError(
            "output.unwritable",
            f"Cannot write {named}: {error.strerror}.",
            "Give --output a file in a folder that exists and is writable.",
        ) from error
