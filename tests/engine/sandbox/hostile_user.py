"""Runs every hostile program as whoever starts this, and prints what did not hold, as JSON.

    python hostile_user.py FOLDER

A program of its own: the suite's own user may be root, and an ordinary one may not be able to read
the interpreter that the suite runs with.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import host
import hostile

from qualityhub.engine.sandbox import idmaps
from qualityhub.engine.sandbox.bwrap import BwrapSandbox
from qualityhub.engine.sandbox.interpreters import default_interpreter


def main() -> None:
    folder = Path(sys.argv[1])
    sandbox = BwrapSandbox(folder)
    able = sandbox.capability()
    failed: dict[str, list[str]] = {}
    if able.usable:
        launcher = sandbox._launcher.process.pid
        python = str(default_interpreter().path)
        for case in hostile.CASES:
            mark = secrets.token_hex(12)

            def look(mark: str = mark) -> host.Host:
                return host.look(folder, mark, (launcher,), idmaps.current().owner)

            with hostile.bait(folder, mark, os.getpid(), launcher) as laid:
                before = look()
                seen = sandbox.run(hostile.command(case, python, laid))
                hard = able.limits["memory_bytes"] == "hard"
                found = hostile.problems(case, seen, hard=hard) + host.settled(before, look)
            if found:
                failed[case.name] = found
    sandbox.close()
    said = {
        "usable": able.usable,
        "reason": able.reason,
        "soft": sorted(name for name, kind in able.limits.items() if kind != "hard"),
        "uid": os.getuid(),
        "ran": len(hostile.CASES) if able.usable else 0,
        "failed": failed,
    }
    sys.stdout.write(json.dumps(said))


if __name__ == "__main__":
    main()
