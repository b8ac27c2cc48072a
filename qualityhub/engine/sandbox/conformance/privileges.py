"""Nothing of the host's power is within reach."""

from __future__ import annotations

import contextlib
import re
import secrets
import threading
from pathlib import Path

from qualityhub.engine.sandbox.conformance.kit import Kit, NotEnforced, check, limited, told
from qualityhub.engine.sandbox.port import Limits


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
        "n=lambda a,b: a if x else b\n"
        "calls={'keyctl':(n(250,219),0,-3,1,0,0), 'add_key':(n(248,217),b'user',b'k',b'v',1,-3),\n"
        "  'bpf':(n(321,280),0,0,0), 'perf':(n(298,241),0,0,-1,-1,0),\n"
        "  'userfaultfd':(n(323,282),0), 'unshare user':(n(272,97),0x10000000),\n"
        "  'unshare mount':(n(272,97),0x20000), 'io_uring':(425,1,0), 'fsopen':(430,b'tmpfs',0),\n"
        "  'mount':(n(165,40),b'none',b'/tmp',b'tmpfs',0,0), 'setns':(n(308,268),0,0)}\n"
        "done=[]\n"
        "for name,call in calls.items():\n"
        "    if libc.syscall(*[ctypes.c_long(a) if isinstance(a,int) else a for a in call])>=0:\n"
        "        done.append(name)\n"
        "print(json.dumps(done))"
    )
    if seen and not limited(kit, "system_calls"):
        raise NotEnforced(f"the engine's own filter allows {', '.join(seen)}")
    return f"allowed: {', '.join(seen)}" if seen else ""


@check
def check_not_root_on_the_host(kit: Kit) -> str:
    """Files that only the host's user 0 may write stay shut, whatever the world calls itself."""
    mark = secrets.token_hex(16)
    seen_from_here: list[int] = []
    over = threading.Event()
    watcher = threading.Thread(target=_watch_for, args=(mark, seen_from_here, over))
    watcher.start()
    try:
        seen = kit.ask(
            "import json,os,subprocess,sys\n"
            "done=[]\n"
            "for p in ('/proc/sysrq-trigger','/proc/sys/kernel/core_pattern',\n"
            "          '/proc/sys/vm/drop_caches',\n"
            "          '/sys/power/state'):\n"
            "    try: os.close(os.open(p,os.O_WRONLY)); done.append(p)\n"
            "    except OSError: pass\n"
            "subprocess.run([sys.argv[1],'-I','-c','import time; time.sleep(1)',sys.argv[2]])\n"
            "me=os.getuid()\n"
            "rows=[[int(w) for w in l.split()] for l in open('/proc/self/uid_map')]\n"
            "print(json.dumps([done, any(r[0]<=me<r[0]+r[2] and me-r[0]+r[1]==0 for r in rows)]))",
            kit.python,
            mark,
        )
    finally:
        over.set()
        watcher.join()
    opened, root = seen
    if opened:
        return f"could open {opened} for writing"
    # A map names ids of the namespace above, which need not be the host's: what shows here counts.
    if seen_from_here:
        root = 0 in seen_from_here
    return "it is the host's user 0" if root else ""


def _watch_for(mark: str, found: list[int], over: threading.Event) -> None:
    """Note the user, as this process sees it, of every process with the mark in its arguments."""
    while not over.wait(0.1):
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mark.encode() in (folder / "cmdline").read_bytes():
                    found.append(folder.stat().st_uid)


@check
def check_file_ownership_is_real(kit: Kit) -> str:
    """Where the provider says so, another user inside cannot write what root owns."""
    if not kit.sandbox.capability().ownership:
        raise NotEnforced("one user id is mapped, so files have one owner")
    seen = kit.ask(
        "import json,os\n"
        "os.mkdir('/tmp/d',0o755); open('/tmp/d/f','w').write('x')\n"
        "os.chown('/tmp/d/f',1500,1500)\n"
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


@check
def check_set_id_programs_gain_nothing(kit: Kit) -> str:
    """A program that root made set-user-id does not make another user root."""
    if not kit.sandbox.capability().ownership:
        raise NotEnforced("one user id is mapped, so there is nobody to gain anything")
    seen = kit.ask(
        "import json,os,shutil,subprocess,sys\n"
        "tool='/tmp/id'; shutil.copy('/usr/bin/id',tool); os.chmod(tool,0o6755)\n"
        "r,w=os.pipe()\n"
        "if os.fork()==0:\n"
        "    os.setgroups([]); os.setgid(1500); os.setuid(1500)\n"
        "    os.write(w,subprocess.run([tool,'-u'],capture_output=True).stdout or b'none')\n"
        "    os._exit(0)\n"
        "os.wait(); print(json.dumps(os.read(r,100).decode().strip()))"
    )
    return "" if seen in {"1500", "none"} else f"it ran as {seen}"


@check
def check_user_and_groups(kit: Kit) -> str:
    """The command is one user with its own group, and none of the caller's groups came along."""
    seen = kit.ask(
        "import json,os\n"
        "print(json.dumps([os.getresuid(),os.getresgid(),sorted(set(os.getgroups()))]))"
    )
    users, groups, more = seen
    if len(set(users)) != 1 or len(set(groups)) != 1:
        return f"its ids are {users} and {groups}"
    return "" if set(more) <= {groups[0], 65534} else f"it also has the groups {more}"


@check
def check_the_clock_cannot_be_set(kit: Kit) -> str:
    """Setting the clock is refused."""
    seen = kit.ask(
        "import json,time\n"
        "try: time.clock_settime(time.CLOCK_REALTIME,time.time()); print(json.dumps('set'))\n"
        "except OSError: print(json.dumps(''))"
    )
    return "the clock could be set" if seen else ""


@check
def check_proc_and_sys_are_masked(kit: Kit) -> str:
    """Kernel switches cannot be written, kernel memory and key rings of the host not be read."""
    seen = kit.ask(
        "import json,os\n"
        "done=[]\n"
        "for root in ('/proc/sys','/sys/kernel','/sys/fs/cgroup','/sys/module'):\n"
        "    for here,_,names in os.walk(root):\n"
        "        for n in names[:50]:\n"
        "            p=here+'/'+n\n"
        "            try:\n"
        "                if os.stat(p).st_mode&0o222:\n"
        "                    os.close(os.open(p,os.O_WRONLY)); done.append('w '+p)\n"
        "            except OSError: pass\n"
        "for p in ('/proc/kcore','/proc/kmsg','/dev/mem','/dev/kmsg','/proc/sched_debug'):\n"
        "    try:\n"
        "        f=os.open(p,os.O_RDONLY|os.O_NONBLOCK)\n"
        "        if os.read(f,16): done.append('r '+p)\n"
        "    except OSError: pass\n"
        "print(json.dumps(done))",
        limits=Limits(wall_s=60),
    )
    # What belongs to the world's own namespaces is its own to change.
    own = re.compile(
        r"w /proc/sys/(fs/mqueue/|net/|user/|kernel/(auto_msgmni|msg|sem|shm|ns_last_pid|hostname"
        r"|domainname))"
    )
    outside = [name for name in seen if not own.match(name)]
    return f"could open {outside[:20]}" if outside else ""


@check
def check_devices(kit: Kit) -> str:
    """Only harmless devices are there, and none can be made."""
    seen = kit.ask(
        "import json,os,stat\n"
        "fine={(1,3),(1,5),(1,7),(1,8),(1,9),(5,0),(5,1),(5,2)}\n"
        "bad=[]\n"
        "for here,_,names in os.walk('/dev'):\n"
        "    for n in names:\n"
        "        s=os.lstat(here+'/'+n)\n"
        "        if not (stat.S_ISCHR(s.st_mode) or stat.S_ISBLK(s.st_mode)): continue\n"
        "        id=(os.major(s.st_rdev),os.minor(s.st_rdev))\n"
        "        if stat.S_ISBLK(s.st_mode) or not (id in fine or 136<=id[0]<=143):\n"
        "            bad.append(here+'/'+n)\n"
        "try: os.mknod('/tmp/disk',stat.S_IFBLK|0o600,os.makedev(254,0)); bad.append('made one')\n"
        "except OSError: pass\n"
        "print(json.dumps(bad))"
    )
    return f"devices: {seen}" if seen else ""


@check
def check_no_terminal(kit: Kit) -> str:
    """No terminal of ours is open or can be opened."""
    seen = kit.ask(
        "import json,os\n"
        "done=[n for n in (0,1,2) if os.isatty(n)]\n"
        "try: os.close(os.open('/dev/tty',os.O_RDWR)); done.append('/dev/tty')\n"
        "except OSError: pass\n"
        "print(json.dumps(done))"
    )
    return f"terminals: {seen}" if seen else ""


@check
def check_signals_to_the_outside(kit: Kit) -> str:
    """Killing its parent, process 1 and everybody harms nobody else; the end is a plain result."""
    seen = kit.run(
        "import os,signal\n"
        "for pid in (os.getppid(),1,-1):\n"
        "    for s in (signal.SIGTERM,signal.SIGKILL):\n"
        "        try: os.kill(pid,s)\n"
        "        except OSError: pass\n"
        "print('still here',flush=True)\n"
        "os._exit(5)"
    )
    if seen.timed_out or seen.out_of_memory:
        return f"it ended as {told(seen)}"
    return "" if seen.exit_code == 5 else f"exit 5 came back as {told(seen)}"
