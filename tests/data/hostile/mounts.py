"""Mounts, namespaces and roots: old calls and new ones."""
import ctypes
import os
import tools
reached = []
for label, call in {
    "mount tmpfs": ("mount", b"none", b"/tmp", b"tmpfs", 0, 0),
    "mount bind": ("mount", b"/", b"/tmp", b"", 4096, 0),
    "remount": ("mount", b"none", b"/usr", b"", 32 | 4096, 0),
    "mount proc": ("mount", b"proc", b"/tmp", b"proc", 0, 0),
    "mount cgroup": ("mount", b"none", b"/tmp", b"cgroup2", 0, 0),
    "umount": ("umount2", b"/usr", 2),
    "umount proc": ("umount2", b"/proc", 2),
    "pivot_root": ("pivot_root", b"/tmp", b"/tmp"),
    "open_tree": ("open_tree", -100, b"/", 1),
    "fsopen": ("fsopen", b"tmpfs", 0),
    "fspick": ("fspick", -100, b"/", 0),
    "mount_setattr": ("mount_setattr", -100, b"/usr", 0, ctypes.create_string_buffer(32), 32),
    "swapon": ("swapon", b"/tmp/x", 0),
    "sethostname in ours": ("open_by_handle_at", -100, ctypes.create_string_buffer(64), 0),
    "acct": ("acct", b"/tmp/x"),
}.items():
    if tools.call(*call) >= 0:
        reached.append(label)
for name, flag in (("user", 0x10000000), ("mount", 0x20000), ("pid", 0x20000000), ("net", 0x40000000),
                   ("ipc", 0x8000000), ("uts", 0x4000000), ("cgroup", 0x2000000), ("time", 0x80)):
    if tools.call("unshare", flag) >= 0:
        reached.append("unshare " + name)
    if name != "time":
        pid = tools.call("clone", flag | 17, 0, 0, 0, 0)
        if pid == 0:
            os._exit(0)
        if pid > 0:
            reached.append("clone " + name)
            os.waitpid(pid, 0)
for name in ("user", "mnt", "pid", "net", "ipc", "uts"):
    for pid in (1, os.getppid()):
        try:
            file = os.open("/proc/%d/ns/%s" % (pid, name), os.O_RDONLY)
        except OSError:
            continue
        if tools.call("setns", file, 0) >= 0:
            reached.append("setns %s of %d" % (name, pid))
        if tools.call("move_mount", file, b"", -100, b"/tmp", 4) >= 0:
            reached.append("move_mount")
if tools.call("chroot", b"/tmp") >= 0:
    reached.append("chroot")
tools.tell(reached)
