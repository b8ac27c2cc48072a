"""Read a ``pip install`` command line, as far as a dependency layer can stand for it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from packaging.requirements import InvalidRequirement, Requirement

_PROGRAMS = re.compile(r"^pip(3(\.\d+)?)?$")
_PYTHONS = re.compile(r"^python(3(\.\d+)?)?$")
_HARMLESS = frozenset(
    {
        "--no-cache-dir",
        "--no-cache",
        "--upgrade",
        "-U",
        "--quiet",
        "-q",
        "-qq",
        "--disable-pip-version-check",
        "--no-input",
        "--break-system-packages",
        "--system",
        "--no-compile",
        "--compile-bytecode",
        "--prefer-binary",
        "--verbose",
        "-v",
        "--no-warn-script-location",
        "--progress-bar=off",
        "--require-hashes",
    }
)
_HARMLESS_WITH_VALUE = frozenset(
    {"--timeout", "--default-timeout", "--retries", "--root-user-action", "--progress-bar"}
)


@dataclass(frozen=True, slots=True)
class PipCommand:
    """What one command installs.

    Attributes:
        requirements: PEP 508 strings.
        files: Requirements files, as written.
    """

    requirements: tuple[str, ...]
    files: tuple[str, ...]


def read_pip(words: list[str]) -> PipCommand:
    """Return what a command installs.

    Raises:
        ValueError: It is no ``pip install``, or has options that change what is installed.
    """
    arguments = _arguments(words)
    requirements: list[str] = []
    files: list[str] = []
    waiting = iter(arguments)
    for word in waiting:
        name, equals, value = word.partition("=")
        if word in _HARMLESS:
            continue
        if name in _HARMLESS_WITH_VALUE:
            if not equals:
                next(waiting, None)
        elif word in {"-r", "--requirement"}:
            files.append(next(waiting, ""))
        elif name == "--requirement":
            files.append(value)
        elif word.startswith("-r"):
            files.append(word[2:])
        elif word.startswith("-"):
            raise ValueError(f"the option {word}")
        else:
            requirements.append(_requirement(word))
    if not requirements and not files:
        raise ValueError("nothing to install")
    return PipCommand(tuple(requirements), tuple(files))


def _arguments(words: list[str]) -> list[str]:
    name = PurePosixPath(words[0]).name
    if _PYTHONS.match(name) and words[1:3] == ["-m", "pip"]:
        rest = words[3:]
    elif name == "uv" and words[1:2] == ["pip"]:
        rest = words[2:]
    elif _PROGRAMS.match(name):
        rest = words[1:]
    else:
        raise ValueError(f"the command {words[0]}")
    while rest and rest[0] in _HARMLESS:
        rest = rest[1:]
    if rest[:1] != ["install"]:
        raise ValueError("another pip command")
    return rest[1:]


def _requirement(word: str) -> str:
    try:
        parsed = Requirement(word)
    except InvalidRequirement:
        raise ValueError(f"{word} is no requirement") from None
    if parsed.url is not None:
        raise ValueError(f"{word} names a place")
    return word
