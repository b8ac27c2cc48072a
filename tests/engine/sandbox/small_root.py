"""A root file system of a few programs of this host and what they are linked to, as tar entries."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from pathlib import Path

from .image_archives import file, folder, link

PROGRAMS = ("sh", "cat", "sleep", "id", "ls", "tail", "env", "setpriv", "mkdir", "rm", "head", "cp")


@functools.cache
def small_root(*programs):
    """Return the entries; everything lies where this host has it, with a shell at /bin/sh."""
    entries = [
        folder("tmp", 0o1777),
        folder("root", 0o700),
        folder("etc"),
        folder("usr/bin"),
        file("etc/passwd", "root:x:0:0::/root:/bin/sh\nagent:x:1500:1500::/home/agent:/bin/sh\n"),
        file("etc/group", "root:x:0:\nagent:x:1500:\nextra:x:1600:agent\n"),
        link("bin", "usr/bin"),
        link("sbin", "usr/bin"),
        *[link(name, f"usr/{name}") for name in ("lib", "lib64") if Path(f"/{name}").is_symlink()],
    ]
    wanted = {}
    for name in programs or PROGRAMS:
        path = Path(shutil.which(name) or "").resolve()
        wanted[f"usr/bin/{name}"] = path
        said = subprocess.run(
            ["ldd", str(path)], capture_output=True, text=True, check=False
        ).stdout
        for found in re.findall(r"(/\S+) \(0x", said):
            place = found.lstrip("/")
            wanted[place if place.startswith("usr/") else f"usr/{place}"] = Path(found)
    entries += [file(name, path.read_bytes(), 0o755) for name, path in wanted.items()]
    return tuple(entries)
