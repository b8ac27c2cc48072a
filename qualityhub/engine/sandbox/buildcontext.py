"""The folder that a Dockerfile copies from: matched, listed and read without following links."""

from __future__ import annotations

import os
import posixpath
import re
import stat
from functools import cached_property
from pathlib import Path

_LARGEST_TEXT = 4 * 1024 * 1024
_MOST_FILES = 200_000


class ContextError(Exception):
    """The instruction cannot be built by any engine: the environment's own fault."""


class BuildContext:
    """Files below one folder, less what ``.dockerignore`` leaves out."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @cached_property
    def files(self) -> tuple[str, ...]:
        """Every file and link, relative to the folder, sorted.

        Raises:
            ContextError: There are too many.
        """
        ignored = _ignore(self._read(".dockerignore") if self._has(".dockerignore") else "")
        found: list[str] = []
        for here, _, names in os.walk(self._root, followlinks=False):
            folder = os.path.relpath(here, self._root)
            folders_as_links = [
                entry.name for entry in os.scandir(here) if entry.is_symlink() and entry.is_dir()
            ]
            for name in sorted({*names, *folders_as_links}):
                path = posixpath.normpath(posixpath.join(folder, name))
                mode = os.lstat(self._root / path).st_mode
                if (stat.S_ISREG(mode) or stat.S_ISLNK(mode)) and not ignored(path):
                    found.append(path)
            if len(found) > _MOST_FILES:
                raise ContextError(f"the build context has more than {_MOST_FILES:,} files")
        return tuple(sorted(found))

    def match(self, pattern: str) -> list[str]:
        """Return files and folders that a COPY source names.

        Raises:
            ContextError: It leaves the context, or nothing matches.
        """
        path = posixpath.normpath(pattern.lstrip("/") or ".")
        if path == ".." or path.startswith("../"):
            raise ContextError(f"{pattern} leaves the build context")
        if path == ".":
            return [""]
        if not re.search(r"[*?\[]", path):
            if path in self.files or self.is_folder(path):
                return [path]
            raise ContextError(f"{pattern} is not in the build context")
        wanted = re.compile(_pattern(path) + r"\Z")
        candidates = set(self.files)
        for file in self.files:
            parent = posixpath.dirname(file)
            while parent:
                candidates.add(parent)
                parent = posixpath.dirname(parent)
        found = sorted(item for item in candidates if wanted.match(item))
        if not found:
            raise ContextError(f"{pattern} matches nothing in the build context")
        return found

    def is_folder(self, path: str) -> bool:
        """Whether a relative path is a folder, no link."""
        if not path:
            return True
        try:
            return stat.S_ISDIR(os.lstat(self._root / path).st_mode)
        except OSError:
            return False

    def below(self, folder: str) -> list[str]:
        """Return every file and link below a folder."""
        prefix = folder + "/" if folder else ""
        return [path for path in self.files if path.startswith(prefix)]

    def text(self, path: str) -> str:
        """Return a text file.

        Raises:
            ContextError: It is a link, too large or no text.
        """
        return self._read(path)

    def _has(self, path: str) -> bool:
        try:
            return stat.S_ISREG(os.lstat(self._root / path).st_mode)
        except OSError:
            return False

    def _read(self, path: str) -> str:
        try:
            file = os.open(self._root / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            with os.fdopen(file, "rb") as content:
                data = content.read(_LARGEST_TEXT + 1)
            if len(data) > _LARGEST_TEXT:
                raise ContextError(f"{path} is larger than {_LARGEST_TEXT:,} bytes")
            return data.decode()
        except UnicodeDecodeError as error:
            raise ContextError(f"{path} is no text") from error
        except OSError as error:
            raise ContextError(f"{path} cannot be read: {error.strerror}") from error


class _ignore:  # noqa: N801 - used as a function
    """Decide by the lines of a ``.dockerignore``; the last that matches wins."""

    def __init__(self, text: str) -> None:
        self._rules: list[tuple[bool, re.Pattern[str]]] = []
        for raw in text.splitlines():
            line = raw.strip()
            if not line or line.startswith("#"):
                continue
            keep = line.startswith("!")
            path = posixpath.normpath(line.lstrip("!").strip().lstrip("/"))
            if path != ".":
                self._rules.append((keep, re.compile(_pattern(path) + r"(?:/.*)?\Z")))

    def __call__(self, path: str) -> bool:
        ignored = False
        for keep, rule in self._rules:
            if rule.match(path):
                ignored = not keep
        return ignored


def _pattern(text: str) -> str:
    """Return a regular expression for a Go file pattern with ``**``."""
    out = ""
    place = 0
    while place < len(text):
        if text.startswith("**/", place):
            out += r"(?:.*/)?"
            place += 3
        elif text.startswith("**", place):
            out += r".*"
            place += 2
        elif text[place] == "*":
            out += r"[^/]*"
            place += 1
        elif text[place] == "?":
            out += r"[^/]"
            place += 1
        elif text[place] == "[" and "]" in text[place + 2 :]:
            end = text.index("]", place + 2)
            inner = text[place + 1 : end].replace("\\", r"\\")
            out += f"[{'^' + inner[1:] if inner[:1] in {'!', '^'} else inner}]"
            place = end + 1
        else:
            out += re.escape(text[place])
            place += 1
    return out
