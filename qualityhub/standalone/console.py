"""What the supervisor shows: its own steps, and its children's lines with their name in front."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TextIO

from qualityhub.engine.reports.safe import printable

if TYPE_CHECKING:
    from pathlib import Path

_COLOURS = {
    "up": "1",
    "postgres": "34",
    "broker": "35",
    "setup": "33",
    "web": "36",
    "worker": "32",
    "beat": "33",
    "demo": "1;32",
}
_LONGEST_LINE = 4000
# A record of our own log format, below a warning.
_ROUTINE = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z (DEBUG|INFO) ")
_WIDTH = max(map(len, _COLOURS))


class Console:
    """Writes lines for people, or one JSON object per line.

    Safe to call from several threads. A reader that went away is no reason to stop.

    Args:
        form: ``text`` or ``json``.
        stream: Where to write; default: stdout.
        colour: Whether to colour; default: when the stream is a terminal, unless ``NO_COLOR``.
        verbose: Whether people see every line, also during the start and of level info.
    """

    def __init__(
        self,
        form: str = "text",
        stream: TextIO | None = None,
        *,
        colour: bool | None = None,
        verbose: bool = False,
    ) -> None:
        self.form = form
        self._stream = stream or sys.stdout
        self._lock = threading.Lock()
        if colour is None:
            colour = not os.environ.get("NO_COLOR") and (
                bool(os.environ.get("FORCE_COLOR"))
                or (self._stream.isatty() and os.environ.get("TERM") != "dumb")
            )
        self.colour = colour and form == "text"
        # People see the steps of a start; what children write meanwhile is in the logs.
        self.children_shown = form == "json" or verbose
        self._all = form == "json" or verbose

    def line(self, name: str, text: str) -> None:
        """Write one line of a part, control characters made visible."""
        text = printable(text.rstrip(), _LONGEST_LINE)
        if self.form == "json":
            self._write(json.dumps({"time": _now(), "part": name, "line": text}))
            return
        self._write(f"{self._paint(name, f'{name:<{_WIDTH}} |')} {text}")

    def child_line(self, name: str, text: str) -> None:
        """Write a child's line if people want to see it now: no routine, nothing empty."""
        if self._all or (self.children_shown and text.strip() and not _ROUTINE.match(text)):
            self.line(name, text)

    def say(self, text: str) -> None:
        """Write one line of the supervisor's own."""
        self.line("up", text)

    def event(self, name: str, block: str, **fields: Any) -> None:
        """Write something of note: a block of text for people, one object for programs.

        Args:
            name: What happened, e.g. ``ready``.
            block: Lines for people.
            **fields: What programs get.
        """
        if self.form == "json":
            self._write(json.dumps({"time": _now(), "event": name, **fields}))
        else:
            self._write(block)

    def bold(self, text: str) -> str:
        """Return the text, bold where there are colours."""
        return f"\033[1m{text}\033[0m" if self.colour else text

    def _paint(self, name: str, text: str) -> str:
        return f"\033[{_COLOURS.get(name, '37')}m{text}\033[0m" if self.colour else text

    def _write(self, text: str) -> None:
        with self._lock, contextlib.suppress(OSError, ValueError):
            try:
                self._stream.write(text + "\n")
            except UnicodeEncodeError:
                encoding = self._stream.encoding or "ascii"
                plain = text.encode(encoding, "backslashreplace").decode(encoding)
                self._stream.write(plain + "\n")
            self._stream.flush()


class LogFile:
    """A part's log, kept below a size by one predecessor.

    Args:
        path: The file; its folder must exist.
        limit: Bytes after which it becomes ``NAME.1``.
    """

    def __init__(self, path: Path, limit: int = 20 * 2**20) -> None:
        self.path = path
        self._limit = limit
        self._file = path.open("ab")

    def write(self, line: bytes) -> None:
        """Append one line; a full disk must not take the part down with it."""
        with contextlib.suppress(OSError):
            if self._file.tell() > self._limit:
                self._file.close()
                self.path.replace(self.path.with_name(self.path.name + ".1"))
                self._file = self.path.open("ab")
            self._file.write(line if line.endswith(b"\n") else line + b"\n")
            self._file.flush()

    def close(self) -> None:
        """End it."""
        with contextlib.suppress(OSError):
            self._file.close()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
