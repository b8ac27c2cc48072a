"""What every provider must hold, as named checks that run against any of them.

A check runs hostile commands and returns a sentence about what did not hold, or an empty string.
The commands are Python programs of the standard library, run by the interpreter that the caller
names; ``qualityhub doctor`` and the tests run the same list.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qualityhub.engine.sandbox.port import MIB, Command, Completed, Limits, Mount, Sandbox

_ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
_QUICK = Limits(wall_s=30)


@dataclass(frozen=True, slots=True)
class Kit:
    """What checks run with.

    Attributes:
        sandbox: Provider under test.
        python: Path of a Python inside the world.
        base: Image tree, or None for the provider's own base.
        scratch: Folder on the host for files that checks mount.
    """

    sandbox: Sandbox
    python: str
    scratch: Path
    base: Path | None = None
    env: dict[str, str] = field(default_factory=lambda: dict(_ENV))

    def run(self, program: str, *arguments: str, **changes: Any) -> Completed:
        """Run a Python program in a fresh world; ``changes`` are fields of the command."""
        changes.setdefault("limits", _QUICK)
        changes.setdefault("env", self.env)
        return self.sandbox.run(
            Command(
                argv=(self.python, "-I", "-S", "-c", program, *arguments), base=self.base, **changes
            )
        )

    def ask(self, program: str, *arguments: str, **changes: Any) -> Any:
        """Run a program that prints one JSON document, and return it.

        Raises:
            AssertionError: It did not; the message says what it did.
        """
        seen = self.run(program, *arguments, **changes)
        if seen.exit_code != 0:
            raise AssertionError(f"the command failed: {_told(seen)}")
        return json.loads(seen.stdout)


Check = Callable[[Kit], str]
CHECKS: dict[str, Check] = {}


def check(function: Check) -> Check:
    """Add a check under its name."""
    CHECKS[function.__name__.removeprefix("check_")] = function
    return function


def run_checks(kit: Kit, names: tuple[str, ...] = ()) -> dict[str, str]:
    """Run checks and return what did not hold by name; empty where everything held."""
    failed = {}
    for name, function in CHECKS.items():
        if names and name not in names:
            continue
        try:
            problem = function(kit)
        except AssertionError as error:
            problem = str(error)
        if problem:
            failed[name] = problem
    return failed


def _limited(kit: Kit, name: str) -> bool:
    """Whether the provider says that the kernel enforces a limit."""
    return kit.sandbox.capability().limits.get(name) == "hard"


def _told(seen: Completed) -> str:
    return (
        f"exit {seen.exit_code}, signal {seen.signal}, timed out {seen.timed_out}, "
        f"stderr {seen.stderr[-400:]!r}"
    )


@contextmanager
def _host_file(kit: Kit, content: bytes) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=kit.scratch) as folder:
        os.chmod(folder, 0o755)  # noqa: PTH101, S103 - must be readable if isolation fails
        path = Path(folder) / "file"
        path.write_bytes(content)
        path.chmod(0o644)
        yield path


# --- files ------------------------------------------------------------------------------------


@check
def check_host_files_are_out_of_sight(kit: Kit) -> str:
    """Neither a file of the host's temporary folders nor home folders can be read."""
    secret = secrets.token_hex(16)
    with _host_file(kit, secret.encode()) as path:
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
    with _host_file(kit, b"before") as path:
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
    return f"{seen or after!r} was written" if seen or after != b"before" else ""


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
    with _host_file(kit, b"before") as path:
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
        "open('/tmp/a','w').write('x'); mode=os.stat('/tmp').st_mode&0o7777\n"
        "print(json.dumps([seen, mode]))"
    )
    for _ in range(2):
        seen, mode = kit.ask(program, mounts=(Mount("/mine", None, "scratch"),))
        if seen:
            return f"it held {seen}"
        if mode != 0o1777:
            return f"/tmp has mode {mode:o}"
    return ""


# --- network and other processes ---------------------------------------------------------------


@check
def check_no_network(kit: Kit) -> str:
    """A server of the host is out of reach by TCP, UDP and name; so is the outside."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.1)
        port = server.getsockname()[1]
        seen = kit.ask(
            "import json,socket,sys\n"
            "done=[]\n"
            "for host in ('127.0.0.1','192.0.2.1','::1'):\n"
            "    try: socket.create_connection((host,int(sys.argv[1])),2); done.append('tcp '+host)\n"
            "    except OSError: pass\n"
            "try:\n"
            "    s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); s.sendto(b'x',('192.0.2.1',53))\n"
            "    done.append('udp')\n"
            "except OSError: pass\n"
            "try: socket.getaddrinfo('example.org',80); done.append('name')\n"
            "except OSError: pass\n"
            "print(json.dumps(done))",
            str(port),
        )
    return f"reached: {', '.join(seen)}" if seen else ""


@check
def check_no_host_sockets(kit: Kit) -> str:
    """Neither an abstract nor a named unix socket of the host can be reached."""
    name = "qh-" + secrets.token_hex(8)
    with (
        tempfile.TemporaryDirectory(dir=kit.scratch) as folder,
        socket.socket(socket.AF_UNIX) as abstract,
        socket.socket(socket.AF_UNIX) as named,
    ):
        abstract.bind("\0" + name)
        abstract.listen()
        path = f"{folder}/s"
        named.bind(path)
        named.listen()
        seen = kit.ask(
            "import json,socket,sys\n"
            "done=[]\n"
            "for a in ('\\0'+sys.argv[1], sys.argv[2], '/run/docker.sock', '/var/run/docker.sock',\n"
            "          '/run/podman/podman.sock', '/run/dbus/system_bus_socket'):\n"
            "    s=socket.socket(socket.AF_UNIX)\n"
            "    try: s.connect(a); done.append(a)\n"
            "    except OSError: pass\n"
            "for family in (40,38,16):\n"
            "    try:\n"
            "        s=socket.socket(family, socket.SOCK_STREAM if family==40 else socket.SOCK_RAW)\n"
            "        if family==40 and sys.argv[3]: done.append('vsock')\n"
            "    except OSError: pass\n"
            "print(json.dumps(done))",
            name,
            path,
            "filtered" if _limited(kit, "system_calls") else "",
        )
    return f"reached: {seen}" if seen else ""


@check
def check_private_loopback(kit: Kit) -> str:
    """A server inside can be reached from inside by 127.0.0.1 and localhost."""
    seen = kit.ask(
        "import json,socket,threading\n"
        "s=socket.create_server(('127.0.0.1',0)); port=s.getsockname()[1]\n"
        "t=threading.Thread(target=lambda:[s.accept()[0].sendall(b'hi') for _ in range(2)])\n"
        "t.daemon=True; t.start()\n"
        "print(json.dumps([socket.create_connection((h,port),5).recv(2).decode()\n"
        "                  for h in ('127.0.0.1','localhost')]))"
    )
    return "" if seen == ["hi", "hi"] else f"it answered {seen}"


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
    with _host_file(kit, b"x") as path, path.open("rb") as held:
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


# --- privileges ----------------------------------------------------------------------------------


@check
def check_no_new_privileges(kit: Kit) -> str:
    """No new privileges, a system call filter, and none of the dangerous capabilities."""
    seen = kit.ask(
        "import json\n"
        "rows=dict(l.split(':',1) for l in open('/proc/self/status') if ':' in l)\n"
        "print(json.dumps([rows['NoNewPrivs'].strip(), rows['Seccomp'].strip(),\n"
        "                  int(rows['CapEff'],16)]))"
    )
    nnp, filtered, capabilities = seen
    if nnp != "1" or filtered != "2":
        return f"NoNewPrivs {nnp}, Seccomp {filtered}"
    # net_admin net_raw sys_module sys_rawio sys_ptrace sys_admin sys_boot sys_time mknod bpf
    dangerous = (12, 13, 16, 17, 19, 21, 22, 25, 27, 38, 39)
    held = [number for number in dangerous if capabilities >> number & 1]
    return f"capabilities {held} are held" if held else ""


@check
def check_kernel_doors_are_shut(kit: Kit) -> str:
    """Namespaces, mounts, key rings, kernel tracing and io_uring are refused."""
    seen = kit.ask(
        "import ctypes,json,os,platform\n"
        "x=platform.machine()=='x86_64'\n"
        "libc=ctypes.CDLL(None,use_errno=True); libc.syscall.restype=ctypes.c_long\n"
        "calls={'keyctl':((250 if x else 219),0,-3,1,0,0),'add_key':((248 if x else 217),b'user',\n"
        "  b'k',b'v',1,-3),'bpf':((321 if x else 280),0,0,0),'perf':((298 if x else 241),0,0,-1,-1,0),\n"
        "  'userfaultfd':((323 if x else 282),0),'unshare user':((272 if x else 97),0x10000000),\n"
        "  'unshare mount':((272 if x else 97),0x20000),'io_uring':(425,1,0),'fsopen':(430,b'tmpfs',0),\n"
        "  'mount':((165 if x else 40),b'none',b'/tmp',b'tmpfs',0,0),'setns':((308 if x else 268),0,0)}\n"
        "done=[]\n"
        "for name,call in calls.items():\n"
        "    if libc.syscall(*[ctypes.c_long(a) if isinstance(a,int) else a for a in call])>=0:\n"
        "        done.append(name)\n"
        "print(json.dumps(done))"
    )
    if not _limited(kit, "system_calls"):
        return ""
    return f"allowed: {', '.join(seen)}" if seen else ""


@check
def check_not_root_on_the_host(kit: Kit) -> str:
    """Files that only the host's user 0 may write stay shut, whatever the world calls itself."""
    seen = kit.ask(
        "import json,os\n"
        "done=[]\n"
        "for p in ('/proc/sysrq-trigger','/proc/sys/kernel/core_pattern','/proc/sys/vm/drop_caches',\n"
        "          '/sys/power/state'):\n"
        "    try: os.close(os.open(p,os.O_WRONLY)); done.append(p)\n"
        "    except OSError: pass\n"
        "me=os.getuid(); rows=[[int(w) for w in l.split()] for l in open('/proc/self/uid_map')]\n"
        "print(json.dumps([done, any(r[0]<=me<r[0]+r[2] and me-r[0]+r[1]==0 for r in rows)]))"
    )
    opened, root = seen
    if opened:
        return f"could open {opened} for writing"
    return "it is the host's user 0" if root else ""


@check
def check_file_ownership_is_real(kit: Kit) -> str:
    """Where the provider says so, another user inside cannot write what root owns."""
    if not kit.sandbox.capability().ownership:
        return ""
    seen = kit.ask(
        "import json,os\n"
        "os.mkdir('/tmp/d',0o755); open('/tmp/d/f','w').write('x'); os.chown('/tmp/d/f',1500,1500)\n"
        "owner=os.stat('/tmp/d/f').st_uid\n"
        "pid=os.fork()\n"
        "if pid==0:\n"
        "    os.setgroups([]); os.setgid(1500); os.setuid(1500)\n"
        "    try: open('/tmp/d/new','w'); os._exit(1)\n"
        "    except OSError: pass\n"
        "    open('/tmp/d/f','w').write('y'); os._exit(0)\n"
        "print(json.dumps([owner, os.waitpid(pid,0)[1]]))"
    )
    return "" if seen == [1500, 0] else f"owner and outcome were {seen}"


# --- limits ---------------------------------------------------------------------------------------

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
        return f"it was not ended by the wall clock: {_told(seen)}"
    if b"up" not in seen.stdout:
        return f"output before the end was lost: {_told(seen)}"
    if took > 20:
        return f"it took {took:.1f} s to end"
    return _survivors(mark)


@check
def check_background_processes_die_with_the_command(kit: Kit) -> str:
    """What the command left in the background ends when it exits."""
    mark = secrets.token_hex(16)
    seen = kit.run(_STUBBORN + "time.sleep(0.2); os._exit(3)", kit.python, mark)
    if seen.exit_code != 3:
        return f"it ended otherwise: {_told(seen)}"
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
        return f"400 MiB were used under a limit of 96: {_told(seen)}"
    if seen.timed_out:
        return "only the wall clock ended it"
    return "" if seen.out_of_memory or b"MemoryError" in seen.stderr else f"not said: {_told(seen)}"


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
        return f"six times 40 MiB were used under a limit of 96: {_told(seen)}"
    # Engines tell only of the first process.
    said = seen.out_of_memory or kit.sandbox.name == "container"
    return "" if said else f"not said: {_told(seen)}"


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
    with _host_file(kit, b"x") as path:
        for where in ("/tmp", "/mine", "/given", "/dev/shm", "/"):  # noqa: S108
            seen = kit.run(
                _FILL,
                limits=Limits(wall_s=60, disk_bytes=32 * MIB),
                env={**kit.env, "WHERE": where},
                mounts=(Mount("/mine", None, "scratch"), Mount("/given", path.parent, "overlay")),
            )
            if seen.signal == signal.SIGKILL and not _limited(kit, "disk_bytes"):
                continue
            if seen.exit_code != 0:
                return f"filling {where} failed: {_told(seen)}"
            done, why = json.loads(seen.stdout)
            if done > 33:
                return f"{done} MiB went to {where} under a limit of 32"
            refused = {"ENOSPC"} if _limited(kit, "disk_bytes") else {"ENOSPC", "EFBIG", "EACCES"}
            if why not in refused:
                return f"writing to {where} failed with {why}"
    return ""


@check
def check_file_count_limit(kit: Kit) -> str:
    """More files than allowed are refused, where the provider limits them."""
    if not _limited(kit, "files"):
        return ""
    seen = kit.ask(
        "import json,os\n"
        "done=0\n"
        "try:\n"
        "    for i in range(2000): open(f'/tmp/{i}','w').close(); done+=1\n"
        "except OSError: pass\n"
        "print(json.dumps(done))",
        limits=Limits(wall_s=30, files=500),
    )
    return "" if 300 <= seen <= 564 else f"{seen} files were made under a limit of 500"


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
    return "" if seen.signal in ended else f"it ended otherwise: {_told(seen)}"


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


# --- the ordinary contract -------------------------------------------------------------------------


@check
def check_stdin(kit: Kit) -> str:
    """Standard input arrives whole and ends; a command that does not read it is no error."""
    data = os.urandom(MIB)
    seen = kit.run(
        "import sys,hashlib\nprint(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())", stdin=data
    )
    if seen.stdout.decode().strip() != hashlib.sha256(data).hexdigest():
        return f"it arrived changed: {_told(seen)}"
    ignored = kit.run("import os; os.close(0); print('fine')", stdin=data)
    if ignored.stdout != b"fine\n":
        return f"ignoring it failed: {_told(ignored)}"
    empty = kit.run("import sys; print(len(sys.stdin.read()))")
    return "" if empty.stdout == b"0\n" else f"without input it read {empty.stdout!r}"


@check
def check_environment_is_clean(kit: Kit) -> str:
    """The command sees its own environment and nothing of ours, process 1 included."""
    secret = "QH_CONFORMANCE_" + secrets.token_hex(8).upper()
    os.environ[secret] = secret
    try:
        seen = kit.ask(
            "import json,os\n"
            "try: one=open('/proc/1/environ','rb').read().decode('latin1')\n"
            "except OSError: one=''\n"
            "print(json.dumps([dict(os.environ), one]))",
            env={**kit.env, "MINE": "a b=c\nd", "LD_LIBRARY_PATH": "/nowhere"},
        )
    finally:
        del os.environ[secret]
    inside, first = seen
    if secret in first or secret in inside:
        return "a variable of ours came along"
    if inside.get("MINE") != "a b=c\nd":
        return f"its own variable arrived as {inside.get('MINE')!r}"
    extra = set(inside) - {*kit.env, "MINE", "LD_LIBRARY_PATH", "PWD", "LC_CTYPE"}
    # A shell that starts the command leaves these.
    extra -= {"OLDPWD", "_", "SHLVL"} if kit.sandbox.name == "container" else set()
    return f"unasked variables: {sorted(extra)}" if extra else ""


@check
def check_umask_cwd_and_hostname(kit: Kit) -> str:
    """Mask, working directory and host name are as asked."""
    seen = kit.ask(
        "import json,os,socket\n"
        "m=os.umask(0); print(json.dumps([m, os.getcwd(), socket.gethostname()]))",
        umask=0o077,
        cwd="/tmp",  # noqa: S108
        hostname="somewhere",
    )
    wanted = [0o077, "/tmp", "somewhere"]  # noqa: S108
    return "" if seen == wanted else f"they were {seen}"


@check
def check_bytes_that_are_no_text(kit: Kit) -> str:
    """Output that is no UTF-8 arrives byte for byte; so do such arguments."""
    seen = kit.run(
        "import os,sys\nos.write(1,bytes(range(256))); os.write(2,os.fsencode(sys.argv[1]))",
        os.fsdecode(b"\xff\xfe"),
    )
    if seen.stdout != bytes(range(256)):
        return f"it arrived as {seen.stdout[:40]!r}"
    return "" if seen.stderr == b"\xff\xfe" else f"the argument arrived as {seen.stderr!r}"


@check
def check_exit_codes_and_signals(kit: Kit) -> str:
    """Exit codes, signals and missing programs are results and told apart."""
    code = kit.run("raise SystemExit(42)")
    if (code.exit_code, code.signal) != (42, None):
        return f"exit 42 came back as {_told(code)}"
    killed = kit.run("import os,signal; os.kill(os.getpid(),signal.SIGSEGV)")
    if (killed.exit_code, killed.signal) != (None, int(signal.SIGSEGV)):
        return f"a segmentation fault came back as {_told(killed)}"
    missing = kit.sandbox.run(
        Command(argv=("/no/such/program",), base=kit.base, env=kit.env, limits=_QUICK)
    )
    good = missing.exit_code == 127 and not missing.timed_out
    return "" if good else f"a missing program came back as {_told(missing)}"


@check
def check_collect_follows_no_link(kit: Kit) -> str:
    """Regular files come back, cut at the cap; links, folders, pipes and missing ones do not."""
    with _host_file(kit, b"of the host") as path:
        seen = kit.run(
            "import os,sys\n"
            "open('/mine/plain','w').write('x'*100); os.symlink(sys.argv[1],'/mine/link')\n"
            "os.symlink('/etc/passwd','/mine/link2'); os.mkfifo('/mine/pipe'); os.mkdir('/mine/dir')\n"
            "os.symlink('/mine','/mine/loop'); os.chmod('/mine/plain',0)\n"
            "os.symlink(os.path.dirname(sys.argv[1]),'/mine/up')",
            str(path),
            mounts=(Mount("/mine", None, "scratch"),),
            collect=(
                "/mine/plain",
                "/mine/link",
                "/mine/link2",
                "/mine/pipe",
                "/mine/dir",
                "/mine/loop/plain",
                "/mine/up/file",
                "/mine/none",
                "/mine/../mine/../../etc/hostname-none",
            ),
            limits=Limits(wall_s=30, collect_bytes=64),
        )
    return "" if seen.collected == {"/mine/plain": b"x" * 64} else f"came back: {seen.collected}"


@check
def check_collect_after_timeout(kit: Kit) -> str:
    """Files can be read back from a command that the wall clock ended."""
    seen = kit.run(
        "import time; open('/tmp/a','w').write('kept'); time.sleep(60)",
        collect=("/tmp/a",),  # noqa: S108
        limits=Limits(wall_s=2),
    )
    return "" if seen.collected == {"/tmp/a": b"kept"} else f"came back: {seen.collected}"  # noqa: S108


@check
def check_several_at_once(kit: Kit) -> str:
    """Commands from several threads do not meet."""
    problems: list[str] = []

    def one(number: int) -> None:
        for _ in range(3):
            seen = kit.run(
                "import sys,os\nassert os.listdir('/mine')==[]\n"
                "open('/mine/a','w').write(sys.argv[1])\nprint(sys.argv[1])",
                str(number),
                mounts=(Mount("/mine", None, "scratch"),),
                collect=("/mine/a",),
            )
            if seen.stdout.decode().strip() != str(number) or seen.collected != {
                "/mine/a": str(number).encode()
            }:
                problems.append(_told(seen))

    threads = [threading.Thread(target=one, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return "; ".join(problems[:2])


@check
def check_usage_is_reported(kit: Kit) -> str:
    """Seconds and memory are in the right order of magnitude."""
    seen = kit.run(
        "import time\na=bytearray(b'x')*(60<<20)\nend=time.process_time()+0.5\n"
        "while time.process_time()<end: pass"
    )
    if seen.exit_code != 0:
        return _told(seen)
    if not 0.3 <= seen.cpu_s <= 5 or seen.wall_s < 0.4:
        return f"{seen.cpu_s} CPU seconds in {seen.wall_s} s"
    peak = seen.peak_memory_bytes
    return "" if peak == 0 or 50 * MIB <= peak <= 400 * MIB else f"a peak of {peak} bytes"
