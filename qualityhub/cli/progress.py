"""Live progress on stderr: only for people, and gone when the work is."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from qualityhub.cli.console import say, use_color
from qualityhub.engine.reports.safe import printable

if TYPE_CHECKING:
    from collections.abc import Iterator


class Quiet:
    """Says nothing: stderr is not a terminal."""

    def stage(self, text: str) -> None:
        """Ignore the stage."""

    def trials(self, done: int, total: int, cached: int) -> None:
        """Ignore the count."""

    def log(self, text: str) -> None:
        """Ignore the line."""


class Live:
    """A spinner with the stage, and a bar with trials, rate and remaining time.

    The engine may report thousands of trials a second from several threads; what is drawn is
    limited by the renderer's own clock.
    """

    def __init__(self, source: str) -> None:
        # The first line must stand before anything heavy is imported.
        say(f"inspecting {printable(source, 200)}")
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            SpinnerColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        console = Console(
            file=sys.stderr,
            force_terminal=True,
            no_color=not use_color(sys.stderr),
            highlight=False,
            markup=False,
        )
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[detail]}", markup=False),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            refresh_per_second=8,
        )
        self._task = self._bar.add_task("reading", total=None, detail="")
        self._began: float | None = None

    def start(self) -> None:
        """Begin to draw."""
        self._bar.start()

    def stop(self) -> None:
        """Remove what was drawn."""
        self._bar.stop()

    def stage(self, text: str) -> None:
        """Show what is being done now."""
        self._bar.update(self._task, description=printable(text, 60))

    def trials(self, done: int, total: int, cached: int) -> None:
        """Show how many trials are done, came from the store, and run per second."""
        now = time.monotonic()
        if self._began is None:
            self._began = now
        elapsed = now - self._began
        ran = done - cached
        words = [f"{cached:,} from the store"] if cached else []
        if ran > 0 and elapsed > 1:
            words.append(f"{ran / elapsed:,.1f} trials/s")
        self._bar.update(self._task, completed=done, total=total, detail=" · ".join(words))

    def log(self, text: str) -> None:
        """Print a line above the bar."""
        self._bar.console.print(printable(text, 500), soft_wrap=True)


@contextmanager
def progress_for(source: str) -> Iterator[Quiet | Live]:
    """Give the engine somewhere to report to while one source is inspected."""
    if not sys.stderr.isatty():
        yield Quiet()
        return
    live = Live(source)
    live.start()
    try:
        yield live
    finally:
        live.stop()
