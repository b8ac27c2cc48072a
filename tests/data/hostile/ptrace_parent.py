"""Takes hold of the processes above it: ptrace, their memory, their open files, their words."""
import ctypes
import os
import sys
import tools
secret = bytes.fromhex(sys.argv[1])
reached, world = [], []


class Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


def writable(pid):
    """Return the writable stretches of a process's memory."""
    found = []
    try:
        with open("/proc/%d/maps" % pid) as file:
            for line in file:
                words = line.split()
                if words[1].startswith("rw"):
                    start, end = (int(word, 16) for word in words[0].split("-"))
                    found.append((start, min(end - start, 1 << 20)))
    except OSError:
        pass
    return found


for pid in sorted({1, os.getppid()} - {os.getpid(), 0}):
    for start, size in writable(pid):
        buffer = ctypes.create_string_buffer(size)
        ours, theirs = Vector(ctypes.addressof(buffer), size), Vector(start, size)
        if tools.call("process_vm_readv", pid, ctypes.byref(ours), 1, ctypes.byref(theirs), 1, 0) > 0:
            world.append("memory of %d" % pid)
            if secret in buffer.raw:
                reached.append("the host's words in memory of %d" % pid)
        one = Vector(ctypes.addressof(buffer), 1), Vector(start, 1)
        if tools.call("process_vm_writev", pid, ctypes.byref(one[0]), 1, ctypes.byref(one[1]), 1, 0) > 0:
            world.append("writing memory of %d" % pid)
    handle = tools.call("pidfd_open", pid, 0)
    for number in range(64):
        got = tools.call("pidfd_getfd", handle, number, 0)
        if got < 0:
            continue
        where = os.readlink("/proc/self/fd/%d" % got)
        world.append("file %d of %d" % (number, pid))
        if not where.startswith(("pipe:", "/dev/null", "anon_inode:[eventfd]")):
            reached.append("file %d of %d: %s" % (number, pid, where))
    if tools.call("ptrace", 0x4206, pid, 0, 0) >= 0:
        world.append("tracing %d" % pid)
try:
    tools.call("ptrace", 16, 1, 0, 0)
    tools.call("ptrace", 8, 1, 0, 0)
finally:
    tools.tell(reached, world=sorted(set(world)))
