"""No process and no open file of the host is within reach."""

from __future__ import annotations

import os

from qualityhub.engine.sandbox.conformance.kit import Kit, check, host_file


@check
def check_host_processes_are_invisible(kit: Kit) -> str:
    """No process of the host shows, and none can be signalled."""
    seen = kit.ask(
        "import json,os,sys\n"
        "mine=int(sys.argv[1]); pids=[int(p) for p in os.listdir('/proc') if p.isdigit()]\n"
        "hit=False\n"
        "try: os.kill(mine,0); hit=mine not in pids\n"
        "except OSError: pass\n"
        "print(json.dumps([len(pids), hit, os.getpid()]))",
        str(os.getpid()),
    )
    count, hit, pid = seen
    if count > 8 or hit:
        return f"{count} processes show, ours signalled: {hit}"
    return "" if pid < 64 else f"the command has process id {pid}: no namespace of its own"


@check
def check_no_inherited_files(kit: Kit) -> str:
    """Only the three standard streams are open."""
    with host_file(kit, b"x") as path, path.open("rb") as held:
        os.set_inheritable(held.fileno(), True)
        seen = kit.ask(
            "import json,os\n"
            "found=[]\n"
            "for f in os.listdir('/proc/self/fd'):\n"
            "    try: where=os.readlink('/proc/self/fd/'+f)\n"
            "    except OSError: continue\n"
            "    if int(f)>2: found.append((f,where))\n"
            "print(json.dumps(found))"
        )
    return f"open files came along: {seen}" if seen else ""
