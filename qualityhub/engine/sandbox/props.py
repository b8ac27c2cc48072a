"""Things of this host that a world is given so that it looks changed: a clock, a locale.

Both are only mounted; nothing of them is imported or run in our own processes.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import struct
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

CLOCK_TARGET = "/qh/clock/libfaketime.so.1"
LOCALE_TARGET = "/qh/locale"
_LIBRARY = Path("vendor", "libfaketime", "src", "libfaketime.so.1")
_ELF = struct.Struct("<4sBB10xHH")
_ELF_64, _LITTLE = 2, 1
# e_machine by the name that this host gives itself.
_MACHINES = {"x86_64": 62, "amd64": 62, "aarch64": 183, "arm64": 183}
_BUILD_S = 60.0


def clock_environment(shift_s: int) -> dict[str, str]:
    """Return the variables that shift the wall clock of what loads the library.

    Without DONT_FAKE_MONOTONIC every wait with a time limit would last for ever: the limit is
    computed on one clock and awaited on the other.

    Args:
        shift_s: Seconds ahead of the true time.
    """
    return {"FAKETIME": f"{shift_s:+d}", "DONT_FAKE_MONOTONIC": "1"}


@cache
def clock_library() -> Path | None:
    """Return the library that shifts the clock, or None where there is none for this machine."""
    spec = importlib.util.find_spec("libfaketime")
    if spec is None or spec.origin is None or not sys.platform.startswith("linux"):
        return None
    path = Path(spec.origin).resolve().parent / _LIBRARY
    return path if fits_machine(path) else None


def fits_machine(path: Path) -> bool:
    """Whether a file is a shared library of this host's own machine."""
    try:
        with path.open("rb") as file:
            magic, bits, order, _, machine = _ELF.unpack(file.read(_ELF.size))
    except (OSError, struct.error):
        return False
    wanted = _MACHINES.get(platform.machine().lower())
    return (magic, bits, order, machine) == (b"\x7fELF", _ELF_64, _LITTLE, wanted)


def locales(home: Path, name: str) -> Path | None:
    """Return a folder with one compiled locale for LOCPATH, or None where this host has no sources.

    Args:
        home: Our data folder; what was compiled once stays below it.
        name: Such as ``de_DE.UTF-8``.
    """
    folder = home / "locales"
    if (folder / name).is_dir():
        return folder
    tool = shutil.which("localedef")
    language, _, charset = name.partition(".")
    if tool is None or not charset:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".new-") as scratch:
        made = Path(scratch) / name
        try:
            subprocess.run(
                [tool, "--no-archive", "-i", language, "-f", charset, str(made)],
                check=True,
                timeout=_BUILD_S,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                env={"PATH": os.defpath},
            )
            made.rename(folder / name)
        except (OSError, subprocess.SubprocessError):
            # Another process may have been first.
            return folder if (folder / name).is_dir() else None
    return folder
