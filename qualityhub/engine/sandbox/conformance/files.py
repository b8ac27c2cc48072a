"""Files of the host stay out of sight and unchanged."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from qualityhub.engine.sandbox.conformance.kit import Kit, NotEnforced, check, host_file
from qualityhub.engine.sandbox.port import Mount


@check
def check_host_files_are_out_of_sight(kit: Kit) -> str:
    """Neither a file of the host's temporary folders nor home folders can be read."""
    secret = secrets.token_hex(16)
    with host_file(kit, secret.encode()) as path:
        seen = kit.ask(
            "import json,os,sys\n"
            "found=[]\n"
            "for p in sys.argv[1:]:\n"
            "    for root in ('','/proc/1/root','/proc/self/root','/oldroot','/proc/1/cwd'):\n"
            "        try: found.append(open(root+p,'rb').read(64).decode('latin1'))\n"
            "        except OSError: pass\n"
            "print(json.dumps(found))",
            str(path),
        )
    return f"a host file could be read: {seen}" if secret in seen else ""


@check
def check_no_shadow_of_the_host(kit: Kit) -> str:
    """The world's password file is not the host's."""
    try:
        host = Path("/etc/shadow").read_text(encoding="utf-8", errors="replace")
    except OSError:
        host = ""
    seen = kit.run("import sys; sys.stdout.write(open('/etc/shadow').read())")
    lines = {line for line in host.splitlines() if line.split(":")[1:2] not in (["*"], ["!"], [""])}
    shared = lines & set(seen.stdout.decode(errors="replace").splitlines())
    return "password entries of the host can be read" if shared else ""


@check
def check_read_only_mounts_stay_so(kit: Kit) -> str:
    """A read-only mount refuses writes, also through a remount."""
    with host_file(kit, b"before") as path:
        seen = kit.ask(
            "import ctypes,json\n"
            "libc=ctypes.CDLL(None)\n"
            "libc.mount(None,b'/given',None,32|4096,None)\n"
            "done=[]\n"
            "for p in ('/given/file','/given/new'):\n"
            "    try: open(p,'w').write('after'); done.append(p)\n"
            "    except OSError: pass\n"
            "print(json.dumps(done))",
            mounts=(Mount("/given", path.parent),),
        )
        after = path.read_bytes()
    if after != b"before":
        return f"the host's file became {after!r}"
    if seen and kit.sandbox.capability().limits.get("read_only") == "none":
        raise NotEnforced("the command got a copy, which it may change for itself")
    return f"{seen} was written" if seen else ""


@check
def check_overlays_are_discarded(kit: Kit) -> str:
    """A copy-on-write mount takes every change and gives none back."""
    program = (
        "import json,os\n"
        "seen=open('/given/file').read(), sorted(os.listdir('/given'))\n"
        "open('/given/file','w').write('after'); open('/given/new','w').write('x')\n"
        "os.rename('/given/file','/given/moved')\n"
        "print(json.dumps([seen, sorted(os.listdir('/given'))]))"
    )
    with host_file(kit, b"before") as path:
        for _ in range(2):
            before, within = kit.ask(program, mounts=(Mount("/given", path.parent, "overlay"),))
            if before != ["before", ["file"]]:
                return f"a second command saw {before}"
            if within != ["moved", "new"]:
                return f"its own changes looked like {within}"
        if path.read_bytes() != b"before" or os.listdir(path.parent) != ["file"]:  # noqa: PTH208
            return "the host's folder was changed"
    return ""


@check
def check_scratch_is_empty_and_writable(kit: Kit) -> str:
    """An empty folder is empty, writable and gone afterwards."""
    program = (
        "import json,os\n"
        "seen=os.listdir('/mine'); open('/mine/a','w').write('x')\n"
        "open('/tmp/a','w').write('x'); mode=lambda p: os.stat(p).st_mode&0o7777\n"
        "print(json.dumps([seen, mode('/tmp'), mode('/mine')]))"
    )
    for _ in range(2):
        seen, mode, open_to = kit.ask(program, mounts=(Mount("/mine", None, "scratch"),))
        if seen:
            return f"it held {seen}"
        if mode != 0o1777:
            return f"the temporary folder has mode {mode:o}"
        if open_to & 0o777 != 0o777:
            return f"not everybody may write to it: its mode is {open_to:o}"
    return ""
