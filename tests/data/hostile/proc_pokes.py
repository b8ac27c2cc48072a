"""What lies in /proc and /sys and belongs to the host."""
import os
import sys
import tools
reached = []
secret = bytes.fromhex(sys.argv[1])

def write(path, data):
    file = os.open(path, os.O_WRONLY)
    try:
        os.write(file, data)
    finally:
        os.close(file)

for path, data in (
    ("/proc/sysrq-trigger", b"h"),
    ("/proc/sys/kernel/core_pattern", b"|/tmp/x"),
    ("/proc/sys/kernel/modprobe", b"/tmp/x"),
    ("/proc/sys/kernel/sysrq", b"511"),
    ("/proc/sys/kernel/ns_last_pid", b"1"),
    ("/proc/sys/vm/drop_caches", b"3"),
    ("/proc/sys/vm/overcommit_memory", b"1"),
    ("/proc/sys/fs/binfmt_misc/register", b":x:M::x::/bin/true:F"),
    ("/proc/irq/default_smp_affinity", b"1"),
    ("/proc/self/oom_score_adj", b"-1000"),
    ("/proc/1/oom_score_adj", b"-1000"),
    ("/proc/self/uid_map", b"0 0 4294967295"),
    ("/proc/1/uid_map", b"0 0 1"),
    ("/sys/power/state", b"mem"),
    ("/sys/kernel/uevent_helper", b"/tmp/x"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", b"-1"),
    ("/sys/fs/cgroup/cgroup.procs", b"0"),
    ("/dev/mem", b"x"),
    ("/dev/kmsg", b"x"),
    ("/dev/port", b"x"),
):
    if tools.can(lambda: write(path, data)):
        reached.append("wrote " + path)
for path in ("/proc/kcore", "/proc/kmsg", "/proc/kpagecount", "/proc/vmallocinfo", "/dev/sda", "/dev/vda",
             "/dev/mem"):
    if tools.can(lambda: os.read(os.open(path, os.O_RDONLY | os.O_NONBLOCK), 16)):
        reached.append("read " + path)
for name in os.listdir("/proc"):
    if not name.isdigit():
        continue
    for what in ("environ", "cmdline"):
        try:
            with open("/proc/%s/%s" % (name, what), "rb") as file:
                if secret in file.read(1 << 20):
                    reached.append("host's words in /proc/%s/%s" % (name, what))
        except OSError:
            pass
    if tools.can(lambda: os.stat("/proc/%s/root%s" % (name, sys.argv[2]))):
        reached.append("host's file through /proc/%s/root" % name)
    if tools.can(lambda: os.stat("/proc/%s/cwd%s" % (name, sys.argv[2]))):
        reached.append("host's file through /proc/%s/cwd" % name)
tools.tell(reached)
