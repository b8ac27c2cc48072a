"""The small script that is a container's first process: what the API cannot set, then the command.

A file, because arguments that are no text cannot travel in the API's JSON; ``env -i``, because
images set variables of their own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from qualityhub.engine.sandbox.port import Command

FOLDER = "/.qh"
"""Folder of the container that is ours; the command's user owns it and nobody else may enter."""
START = f"{FOLDER}/start"
REPORT = f"{FOLDER}/end"
_STDIN = f"{FOLDER}/stdin"
_PIPE = f"{FOLDER}/pipe"
_LARGEST_NUMBER = 1 << 62

# Read inside, since the control group is gone with the container: version 2, then version 1.
_REPORT = b"""\
read_number() { [ -r "$2" ] && read -r n _ <"$2" && echo "$1 $n"; }
read_row() { [ -r "$3" ] && while read -r k v; do [ "$k" = "$2" ] && echo "$1 $v"; done <"$3"; }
{
g=/sys/fs/cgroup
read_number peak $g/memory.peak || read_number peak $g/memory/memory.max_usage_in_bytes
read_row killed oom_kill $g/memory.events || read_row killed oom_kill $g/memory/memory.oom_control
read_row microseconds usage_usec $g/cpu.stat || read_number nanoseconds $g/cpuacct/cpuacct.usage
} >/.qh/end 2>/dev/null
"""


@dataclass(frozen=True, slots=True)
class Report:
    """What the control group said at the end.

    Attributes:
        peak_bytes: Largest memory of the tree.
        cpu_s: CPU seconds of the tree.
        kills: Processes that the memory limit ended.
    """

    peak_bytes: int = 0
    cpu_s: float = 0.0
    kills: int = 0


def script(command: Command, hidden: Mapping[str, str]) -> bytes:
    """Return the script of one command.

    Args:
        command: What it runs; its standard input lies beside the script.
        hidden: Folders that take the place of what the image has there: target by where they lie.
    """
    limits = command.limits
    variables = [os.fsencode(f"{name}={value}") for name, value in command.env.items()]
    words = [b"env", b"-i", *variables, *(os.fsencode(word) for word in command.argv)]
    path = os.fsencode(command.env.get("PATH", "/usr/local/bin:/usr/bin:/bin"))
    cwd = _quoted(os.fsencode(command.cwd))
    lines = [b"rm -f " + START.encode()]
    for place, target in hidden.items():
        at = _quoted(os.fsencode(target))
        lines.append(b"rm -rf " + at + b"; mv " + place.encode() + b" " + at + b" || exit 126")
    lines += [
        b"mkdir -p " + cwd + b" 2>/dev/null",
        b"umask %03o" % command.umask,
        b"ulimit -c 0 2>/dev/null; ulimit -t %d; ulimit -n %d" % (limits.cpu_s, limits.open_files),
        b"ulimit -f %d" % max(1, limits.disk_bytes // 512),
        b"cd " + cwd + b" || exit 126",
        b"PATH=" + _quoted(path) + b"; export PATH",
    ]
    source = b"</dev/null"
    if command.stdin:
        # Through a pipe whose content lies nowhere once it is read: it may hold what the command
        # must not give to its children.
        stdin, pipe = _STDIN.encode(), _PIPE.encode()
        lines += [
            b"umask 077; mkfifo " + pipe + b" || exit 126; umask %03o" % command.umask,
            b"cat <" + stdin + b" >" + pipe + b" 2>/dev/null &",
            b"exec 4<" + pipe + b"; rm -f " + stdin + b" " + pipe,
        ]
        source = b"<&4 4<&-"
    lines += [
        # Not by exec: a first process ignores signals that an ordinary one dies of. What the shell
        # itself would say about such a death goes nowhere.
        b"exec 3>&2 2>/dev/null",
        b" ".join(_quoted(word) for word in words) + b" " + source + b" 2>&3 3>&-",
        b"code=$?",
        _REPORT + b"exit $code",
    ]
    return b"\n".join(lines) + b"\n"


def stdin_file() -> str:
    """Return where the script expects the command's standard input, if it has any."""
    return _STDIN


def read_report(content: bytes | None) -> Report:
    """Return what a container left as its report; foreign code may have written it."""
    seen = {
        name: min(int(number), _LARGEST_NUMBER)
        for name, number in re.findall(
            r"^(\w+) (\d{1,19})$", (content or b"").decode("latin1"), re.MULTILINE
        )
    }
    cpu_s = seen.get("microseconds", 0) / 1e6 or seen.get("nanoseconds", 0) / 1e9
    return Report(seen.get("peak", 0), cpu_s, seen.get("killed", 0))


def _quoted(word: bytes) -> bytes:
    return b"'" + word.replace(b"'", b"'\\''") + b"'"
