"""Read from a Dockerfile, as text, which Python requirements its image installs."""

from __future__ import annotations

import re
import shlex
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_WITH_VALUE = frozenset(
    {
        "-i", "--index-url", "--extra-index-url", "-f", "--find-links", "-c", "--constraint",
        "-e", "--editable", "-t", "--target", "--prefix", "--root", "--python", "-p", "--timeout",
        "--retries", "--trusted-host", "--only-binary", "--no-binary", "--platform", "--proxy",
        "--cache-dir", "--upgrade-strategy", "--progress-bar", "--src", "--log",
    }
)  # fmt: skip


def image_requirements(dockerfile: str, read: Callable[[str], str | None]) -> tuple[str, ...]:
    """Return the requirements of every ``RUN pip install`` in order, each once.

    Args:
        dockerfile: Its text.
        read: Returns a requirements file of the build context by relative path, or None.
    """
    copied: dict[str, str] = {}
    found: dict[str, None] = {}
    for line in instructions(dockerfile):
        word, _, rest = line.partition(" ")
        match word.upper():
            case "COPY" | "ADD":
                parts = [part for part in _words(rest) if not part.startswith("--")]
                for source in parts[:-1]:
                    copied[PurePosixPath(source).name] = source
            case "RUN":
                for requirement in _installed(rest, copied, read):
                    found[requirement] = None
    return tuple(found)


def instructions(dockerfile: str) -> Iterator[str]:
    """Yield instructions with continued lines joined, without comments."""
    joined = ""
    for raw in dockerfile.splitlines():
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        if line.endswith("\\"):
            joined += line[:-1] + " "
            continue
        yield joined + line
        joined = ""
    if joined.strip():
        yield joined.strip()


def _installed(
    command: str, copied: dict[str, str], read: Callable[[str], str | None]
) -> Iterator[str]:
    for words in _commands(command):
        start = _after_install(words)
        if start is None:
            continue
        rest = iter(words[start:])
        for word in rest:
            if word in {"-r", "--requirement"}:
                name = next(rest, "")
                text = read(copied.get(PurePosixPath(name).name, name))
                yield from _file_lines(text or "")
            elif word in _WITH_VALUE:
                next(rest, None)
            elif not word.startswith("-") and "$" not in word and not _is_path(word):
                yield word


def _commands(text: str) -> Iterator[list[str]]:
    """Yield the words of each simple command of a shell line."""
    words: list[str] = []
    for word in _words(text, "|&;"):
        if word.strip("|&;"):
            words.append(word)
        else:
            yield words
            words = []
    yield words


def _after_install(words: list[str]) -> int | None:
    for index, word in enumerate(words[:-1]):
        name = PurePosixPath(word).name
        if re.fullmatch(r"pip[0-9.]*", name) and words[index + 1] == "install":
            return index + 2
    return None


def _file_lines(text: str) -> Iterator[str]:
    for raw in text.splitlines():
        line = re.sub(r"(^|\s)#.*$", "", raw).split(" --hash")[0].rstrip("\\ ").strip()
        if line and not line.startswith("-"):
            yield line


def _is_path(word: str) -> bool:
    return word.startswith((".", "/")) or word.endswith((".whl", ".tar.gz", ".zip"))


def _words(text: str, separators: str = "") -> list[str]:
    lexer = shlex.shlex(text, posix=True, punctuation_chars=separators)
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        return list(lexer)
    except ValueError:
        return text.split()
