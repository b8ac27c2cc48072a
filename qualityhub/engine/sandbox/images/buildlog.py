"""What an engine said while it built an image: shown line by line, kept whole within a cap."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import zstandard

from qualityhub.engine.sandbox.images.model import LOG_CHARACTERS
from qualityhub.engine.sandbox.owners import label

HEAD_BYTES = 4 * 1024 * 1024
TAIL_BYTES = 4 * 1024 * 1024
_STEP = re.compile(r"^(?:\[(\d+/\d+)\] )?step (\d+)/(\d+)\s*:\s*(.*)", re.IGNORECASE)
_SHOWN = 100


class BuildLog:
    """Collects what comes from the engine.

    Args:
        tell: Told each step of the build and each image that is fetched.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped = 0
        self._line = ""
        self._statuses: set[str] = set()

    def take(self, item: Mapping[str, Any]) -> str:
        """Take one message of the engine and return its text."""
        text = str(item.get("stream") or item.get("error") or "")
        status = item.get("status")
        if not text and isinstance(status, str) and not item.get("progressDetail"):
            text = " ".join(str(item.get(key) or "") for key in ("id", "status")).strip() + "\n"
            if text in self._statuses:
                return ""
            self._statuses.add(text)
        self._keep(text.encode("utf-8", "replace"))
        self._line += text
        *lines, self._line = self._line.split("\n")
        self._line = self._line[-_SHOWN * 10 :]
        for line in lines:
            step = _STEP.match(line.strip())
            if step:
                stage = f"stage {step[1]} " if step[1] else ""
                words = re.sub(r"\s+", " ", step[4]).strip()
                self._tell(f"image {stage}step {step[2]}/{step[3]}: {_short(words)}")
        return text

    @property
    def tail(self) -> str:
        """The last characters."""
        kept = self._tail or self._head
        return kept[-LOG_CHARACTERS * 4 :].decode("utf-8", "replace")[-LOG_CHARACTERS:]

    def write(self, path: Path) -> Path | None:
        """Keep the log as a compressed file; None where nothing was said."""
        if not self._head:
            return None
        text = bytes(self._head)
        if self._dropped:
            text += f"\n[… {self._dropped:,} bytes left out …]\n".encode()
        text += bytes(self._tail)
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".new-{label()}-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(zstandard.ZstdCompressor(level=6).compress(text))
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        return path

    def _keep(self, data: bytes) -> None:
        room = HEAD_BYTES - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        over = len(self._tail) - TAIL_BYTES
        if over > 0:
            self._dropped += over
            del self._tail[:over]


def read_log(path: Path) -> str:
    """Return a kept log as text; empty where it is not there or not readable."""
    try:
        data = zstandard.ZstdDecompressor().decompress(
            path.read_bytes(), max_output_size=HEAD_BYTES + TAIL_BYTES + 1024
        )
    except (OSError, zstandard.ZstdError):
        return ""
    return data.decode("utf-8", "replace")


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
