"""Runs every hostile program as whoever starts this, and prints what did not hold, as JSON.

    python hostile_user.py FOLDER cold|served

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
from qualityhub.engine.sandbox.served import serve_key


def main() -> None:
    folder = Path(sys.argv[1])
    sandbox = BwrapSandbox(folder)
    able = sandbox.capability()
    failed: dict[str, list[str]] = {}
    servers = {}
    own_mark = secrets.token_hex(12)
    cases = hostile.CASES
    if sys.argv[2] == "served":
        cases = tuple(case for case in cases if case.file.endswith(".py"))
    if able.usable:
        launcher = sandbox._launcher.process.pid
        python = str(default_interpreter().path)
        for case in cases:

            def look() -> host.Host:
                return host.look(folder, own_mark, (launcher,), idmaps.current().owner)

            with hostile.bait(folder, secrets.token_hex(12), os.getpid(), launcher) as laid:
                wanted = hostile.command(case, python, laid, mark=own_mark)
                run = sandbox.run
                if sys.argv[2] == "served":
                    wanted = hostile.served(case, python, laid, mark=own_mark)
                    key = serve_key(wanted)
                    if key not in servers:
                        servers[key] = sandbox.serve(wanted)
                    run = servers[key].run
                before = look()
                seen = run(wanted)
                hard = able.limits["memory_bytes"] == "hard"
                found = hostile.problems(case, seen, hard=hard) + host.settled(before, look)
            if found:
                failed[case.name] = found
    for server in servers.values():
        server.close()
    sandbox.close()
    said = {
        "usable": able.usable,
        "reason": able.reason,
        "soft": sorted(name for name, kind in able.limits.items() if kind != "hard"),
        "uid": os.getuid(),
        "ran": len(cases) if able.usable else 0,
        "failed": failed,
    }
    sys.stdout.write(json.dumps(said))


if __name__ == "__main__":
    main()
