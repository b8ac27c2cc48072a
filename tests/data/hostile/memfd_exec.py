"""Runs a program that lies in no file system; it must have no more rights than this one."""
import os
import shutil
import tools
file = os.memfd_create("program", 0)
with open(shutil.which("cat"), "rb") as source:
    data = source.read()
    while data:
        data = data[os.write(file, data):]
os.fchmod(file, 0o6755)
read, write = os.pipe()
pid = os.fork()
if pid == 0:
    os.dup2(write, 1)
    os.execve(file, ["cat", "/proc/self/status"], {})
os.close(write)
os.waitpid(pid, 0)
rows = dict(line.split(":\t", 1) for line in os.read(read, 65536).decode().splitlines() if ":\t" in line)
mine = dict(line.rstrip("\n").split(":\t", 1) for line in open("/proc/self/status") if ":\t" in line)
tools.tell([
    name for name in ("NoNewPrivs", "Seccomp", "CapEff", "CapPrm", "CapBnd", "Uid", "Gid")
    if name not in rows or (int(rows[name], 16) & ~int(mine[name], 16) if name.startswith("Cap") else rows[name] != mine[name])
] if rows else [], ran=bool(rows))
