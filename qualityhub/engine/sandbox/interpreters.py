"""Python interpreters of this host, found without running anything of an environment."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

_ASK = (
    "import sys,platform;"
    "print(sys.base_prefix);print(platform.python_version());"
    "print(getattr(sys,'_base_executable',None) or sys.executable);"
    "print(sys.implementation.name);print(platform.libc_ver()[0],platform.libc_ver()[1])"
)
_NAME = re.compile(r"python3(\.\d+)?$")


@dataclass(frozen=True, slots=True)
class Interpreter:
    """One Python interpreter, outside any virtual environment.

    Attributes:
        path: Its program, links resolved where the folder above is not its prefix.
        prefix: Its installation; a trial mounts it at this very path.
        version: Full version, e.g. ``3.11.7``.
        implementation: ``cpython`` or another.
        libc: Name and version of the C library, e.g. ``glibc 2.36``.
    """

    path: Path
    prefix: Path
    version: str
    implementation: str = "cpython"
    libc: str = ""

    @property
    def in_usr(self) -> bool:
        """Whether the rehearsal base brings it already."""
        return self.prefix.is_relative_to("/usr")

    def satisfies(self, spec: str) -> bool:
        """Whether its version satisfies a specifier or a bare version."""
        wanted = _specifier(spec)
        return wanted is not None and wanted.contains(self.version, prereleases=True)


@functools.cache
def default_interpreter() -> Interpreter:
    """Return the interpreter below the one that runs us.

    Raises:
        RuntimeError: It does not answer, which no working Python does.
    """
    found = _ask(Path(getattr(sys, "_base_executable", "") or sys.executable))
    if found is None:
        raise RuntimeError(f"{sys.executable} does not answer")
    return found


def find_interpreter(spec: str | None) -> Interpreter | None:
    """Return the interpreter that satisfies a version specifier, the newest where several do.

    The default one is taken whenever it satisfies it.

    Args:
        spec: A PEP 440 specifier such as ``>=3.12``, a bare version such as ``3.12``, or None.
    """
    default = default_interpreter()
    if not spec:
        return default
    wanted = _specifier(spec)
    if wanted is None:
        return None
    if wanted.contains(default.version, prereleases=True):
        return default
    fitting = [item for item in all_interpreters() if wanted.contains(item.version)]
    return max(fitting, key=lambda item: Version(item.version), default=None)


def valid_specifier(spec: str) -> bool:
    """Whether a declared Python version can be understood."""
    return _specifier(spec) is not None


def _specifier(spec: str) -> SpecifierSet | None:
    text = spec.strip()
    try:
        if re.fullmatch(r"\d+(\.\d+)?", text):
            return SpecifierSet(f"=={text}.*")
        if re.fullmatch(r"\d+\.\d+\.\d+", text):
            return SpecifierSet(f"=={text}")
        return SpecifierSet(text)
    except (InvalidSpecifier, InvalidVersion):
        return None


@functools.cache
def all_interpreters() -> tuple[Interpreter, ...]:
    """Return every interpreter that this host has in the usual places, each once."""
    seen: dict[tuple[Path, str], Interpreter] = {}
    for candidate in _candidates():
        found = _ask(candidate)
        if found is not None:
            seen.setdefault((found.prefix, found.version), found)
    return tuple(seen.values())


def _candidates() -> list[Path]:
    paths: list[Path] = []
    folders = [Path(item) for item in os.environ.get("PATH", "/usr/bin:/bin").split(":") if item]
    folders += [Path("/usr/bin"), Path("/usr/local/bin")]
    for folder in dict.fromkeys(folders):
        if "shims" not in folder.parts:
            paths += sorted(item for item in _listed(folder) if _NAME.fullmatch(item.name))
    stores = [Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"]
    stores.append(Path.home() / ".local/share/uv/python")
    # Beside our own interpreter: the same store under another home folder.
    stores.append(default_interpreter().prefix.parent)
    for store in dict.fromkeys(stores):
        paths += sorted(version / "bin/python3" for version in _listed(store))
    return [path for path in paths if shutil.which(str(path))]


def _listed(folder: Path) -> list[Path]:
    """Return what a folder holds; one that is missing or closed to us holds nothing."""
    try:
        return list(folder.iterdir())
    except OSError:
        return []


@functools.cache
def _ask(program: Path) -> Interpreter | None:
    try:
        done = subprocess.run(
            [str(program), "-I", "-S", "-c", _ASK],
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
            env={},
        )
    except (OSError, subprocess.SubprocessError):
        return None
    lines = done.stdout.splitlines()
    if len(lines) < 5:
        return None
    prefix = Path(lines[0]).resolve()
    return Interpreter(
        path=_program(prefix, Path(lines[2])),
        prefix=prefix,
        version=lines[1],
        implementation=lines[3],
        libc=lines[4].strip(),
    )


def _program(prefix: Path, seen: Path) -> Path:
    """Return the program below its prefix, so that mounting the prefix brings it along."""
    resolved = seen.resolve()
    if resolved.is_relative_to(prefix):
        return resolved
    below = prefix / "bin" / resolved.name
    return below if below.exists() else resolved
