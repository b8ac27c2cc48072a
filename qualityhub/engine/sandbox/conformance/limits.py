"""Every limit ends or refuses what goes beyond it, and takes the whole tree."""

from __future__ import annotations

import json
import os
import secrets
import signal
import time
from pathlib import Path

from qualityhub.engine.sandbox.conformance.kit import (
    Kit,
    NotEnforced,
    check,
    host_file,
    limited,
    told,
)
from qualityhub.engine.sandbox.port import MIB, Limits, Mount

_STUBBORN = (
    "import os,signal,sys,time\n"
    "for s in (signal.SIGTERM,signal.SIGINT,signal.SIGHUP): signal.signal(s,signal.SIG_IGN)\n"
    "if os.fork()==0:\n"
    "    os.setsid()\n"
    "    if os.fork()==0:\n"
    "        for s in (signal.SIGTERM,signal.SIGHUP): signal.signal(s,signal.SIG_IGN)\n"
    "        os.execv(sys.argv[1],[sys.argv[1],'-I','-S','-c',"
    "'import time,sys; time.sleep(600)',sys.argv[2]])\n"
    "    os._exit(0)\n"
)


@check
def check_whole_tree_dies_on_timeout(kit: Kit) -> str:
    """The wall clock ends a session of its own that ignores signals and was forked twice."""
    mark = secrets.token_hex(16)
    began = time.monotonic()
    seen = kit.run(
        _STUBBORN + "print('up',flush=True)\ntime.sleep(600)",
        kit.python,
        mark,
        limits=Limits(wall_s=1.0),
    )
    took = time.monotonic() - began
    if not seen.timed_out or seen.exit_code is not None:
        return f"it was not ended by the wall clock: {told(seen)}"
    if b"up" not in seen.stdout:
        return f"output before the end was lost: {told(seen)}"
    if took > 20:
        return f"it took {took:.1f} s to end"
    return _survivors(mark)


@check
def check_background_processes_die_with_the_command(kit: Kit) -> str:
    """What the command left in the background ends when it exits."""
    mark = secrets.token_hex(16)
    seen = kit.run(_STUBBORN + "time.sleep(0.2); os._exit(3)", kit.python, mark)
    if seen.exit_code != 3:
        return f"it ended otherwise: {told(seen)}"
    return _survivors(mark)


def _survivors(mark: str) -> str:
    for _ in range(20):
        left = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                try:
                    words = (entry / "cmdline").read_bytes()
                except OSError:
                    continue
                # The launcher of a command may carry its arguments; a survivor sleeps with them.
                if mark.encode() in words and b"sleep" in words:
                    left.append(entry.name)
        if not left:
            return ""
        time.sleep(0.1)
    return f"processes survived: {left}"


@check
def check_memory_limit(kit: Kit) -> str:
    """More memory than allowed ends the command or fails inside, and it is said."""
    seen = kit.run(
        "import time\n"
        "a=[]\n"
        "for _ in range(400):\n"
        "    a.append(bytearray(b'x')*(1<<20)); time.sleep(0.001)\n"
        "time.sleep(1); print('all of it')",
        limits=Limits(wall_s=60, memory_bytes=96 * MIB, disk_bytes=16 * MIB),
    )
    if b"all of it" in seen.stdout:
        return f"400 MiB were used under a limit of 96: {told(seen)}"
    if seen.timed_out:
        return "only the wall clock ended it"
    return "" if seen.out_of_memory or b"MemoryError" in seen.stderr else f"not said: {told(seen)}"


@check
def check_memory_limit_counts_the_tree(kit: Kit) -> str:
    """Children share the limit."""
    seen = kit.run(
        "import os,time\n"
        "pids=[]\n"
        "for _ in range(6):\n"
        "    pid=os.fork()\n"
        "    if pid==0:\n"
        "        a=bytearray(b'x')*(40<<20); time.sleep(3); os._exit(7)\n"
        "    pids.append(pid)\n"
        "codes=[os.waitpid(p,0)[1] for p in pids]\n"
        "print('all of it' if codes==[7<<8]*6 else codes)",
        limits=Limits(wall_s=60, memory_bytes=96 * MIB, disk_bytes=16 * MIB),
    )
    if b"all of it" in seen.stdout:
        return f"six times 40 MiB were used under a limit of 96: {told(seen)}"
    return "" if seen.out_of_memory else f"not said: {told(seen)}"


@check
def check_process_limit(kit: Kit) -> str:
    """More processes than allowed are refused."""
    seen = kit.ask(
        "import json,os,signal,time\n"
        "pids=[]\n"
        "try:\n"
        "    for _ in range(100):\n"
        "        pid=os.fork()\n"
        "        if pid==0: time.sleep(60); os._exit(0)\n"
        "        pids.append(pid)\n"
        "except OSError: pass\n"
        "print(json.dumps(len(pids)))\n"
        "for p in pids: os.kill(p,signal.SIGKILL)",
        limits=Limits(wall_s=30, pids=20),
    )
    return "" if 5 <= seen <= 24 else f"{seen} processes ran under a limit of 20"


_FILL = (
    "import errno,json,os\n"
    "done=0; why=None\n"
    "try:\n"
    "    with open(os.environ['WHERE']+'/big','wb') as f:\n"
    "        for _ in range(200):\n"
    "            f.write(b'x'*(1<<20)); f.flush(); done+=1\n"
    "except OSError as e: why=errno.errorcode[e.errno]\n"
    "print(json.dumps([done,why]))"
)


@check
def check_disk_limit(kit: Kit) -> str:
    """All writable places of the world share the disk limit."""
    with host_file(kit, b"x") as path:
        for where in ("/tmp", "/mine", "/given", "/dev/shm", "/"):  # noqa: S108
            seen = kit.run(
                _FILL,
                limits=Limits(wall_s=60, disk_bytes=32 * MIB),
                env={**kit.env, "WHERE": where},
                mounts=(Mount("/mine", None, "scratch"), Mount("/given", path.parent, "overlay")),
            )
            if seen.signal == signal.SIGKILL and not limited(kit, "disk_bytes"):
                continue
            if seen.exit_code != 0:
                return f"filling {where} failed: {told(seen)}"
            done, why = json.loads(seen.stdout)
            if done > 33:
                return f"{done} MiB went to {where} under a limit of 32"
            refused = {"ENOSPC"} if limited(kit, "disk_bytes") else {"ENOSPC", "EFBIG", "EACCES"}
            if why not in refused:
                return f"writing to {where} failed with {why}"
    if not limited(kit, "disk_bytes"):
        raise NotEnforced("what is written is sampled, and the command ended")
    return ""


@check
def check_file_count_limit(kit: Kit) -> str:
    """More files than allowed are refused."""
    program = (
        "import json,os,sys,time\n"
        "done=0\n"
        "try:\n"
        "    for i in range(int(sys.argv[1])): open(f'/tmp/{i}','w').close(); done+=1\n"
        "except OSError: pass\n"
        "print(json.dumps(done),flush=True)\n"
        "time.sleep(float(sys.argv[2]))"
    )
    if limited(kit, "files"):
        seen = kit.ask(program, "2000", "0", limits=Limits(wall_s=30, files=500))
        return "" if 300 <= seen <= 564 else f"{seen} files were made under a limit of 500"
    if kit.sandbox.capability().limits.get("files") != "soft":
        raise NotEnforced("the number of files has no limit")
    ended = kit.run(program, "2000", "60", limits=Limits(wall_s=30, files=500))
    if ended.timed_out or ended.signal != signal.SIGKILL:
        return f"2000 files stood under a limit of 500: {told(ended)}"
    raise NotEnforced("files are counted now and then, and the command ended")


@check
def check_open_file_limit(kit: Kit) -> str:
    """More open files than allowed are refused."""
    seen = kit.ask(
        "import json\n"
        "files=[]\n"
        "try:\n"
        "    for _ in range(500): files.append(open('/dev/null'))\n"
        "except OSError: pass\n"
        "n=len(files); del files[:]\n"
        "print(json.dumps(n))",
        limits=Limits(wall_s=30, open_files=64),
    )
    return "" if 40 <= seen <= 64 else f"{seen} files were open under a limit of 64"


@check
def check_cpu_limit(kit: Kit) -> str:
    """A process that burns more CPU seconds than allowed is ended."""
    seen = kit.run("while True: pass", limits=Limits(wall_s=20, cpu_s=1))
    if seen.timed_out:
        return "only the wall clock ended it"
    ended = {signal.SIGXCPU, signal.SIGKILL}
    return "" if seen.signal in ended else f"it ended otherwise: {told(seen)}"


@check
def check_output_is_capped(kit: Kit) -> str:
    """A flood on both streams is cut, counted, and does not block."""
    seen = kit.run(
        "import os\n"
        "for _ in range(64):\n"
        "    for fd in (1,2): os.write(fd,b'y'*65536) if fd==2 else None\n"
        "    n=0\n"
        "    while n<65536: n+=os.write(1,b'x'*(65536-n))\n",
        limits=Limits(wall_s=60, output_bytes=100_000),
    )
    if seen.stdout != b"x" * 100_000 or len(seen.stderr) != 100_000:
        return f"{len(seen.stdout)} and {len(seen.stderr)} bytes were kept of at most 100000"
    return "" if seen.dropped_bytes > 4_000_000 else f"only {seen.dropped_bytes} bytes were counted"
