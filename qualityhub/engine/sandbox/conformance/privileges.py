"""Nothing of the host's power is within reach."""

from __future__ import annotations

from qualityhub.engine.sandbox.conformance.kit import Kit, check, limited


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
    if not limited(kit, "system_calls"):
        return ""
    return f"allowed: {', '.join(seen)}" if seen else ""


@check
def check_not_root_on_the_host(kit: Kit) -> str:
    """Files that only the host's user 0 may write stay shut, whatever the world calls itself."""
    seen = kit.ask(
        "import json,os\n"
        "done=[]\n"
        "for p in ('/proc/sysrq-trigger','/proc/sys/kernel/core_pattern',\n"
        "          '/proc/sys/vm/drop_caches',\n"
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
