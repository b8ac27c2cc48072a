"""Programs with the set-user-id bit: those that are there, and one of its own."""
import os
import shutil
import subprocess
import tools
reached = []
mine = open("/proc/self/status").read()
other = 1500
for folder in ("/tmp", "/logs", "/dev/shm", "/var/tmp"):
    path = folder + "/cat"
    shutil.copyfile(shutil.which("cat"), path)
    os.chmod(path, 0o6755)
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setresgid(other, other, other)
            os.setresuid(other, other, other)
        except OSError:
            os._exit(0)
        try:
            seen = subprocess.run([path, "/proc/self/status"], capture_output=True).stdout.decode()
        except OSError:
            os._exit(0)
        rows = [line.split() for line in seen.splitlines() if line.startswith("Uid")]
        os._exit(0 if not rows or rows[0][2] == str(other) else 1)
    if os.waitpid(pid, 0)[1]:
        reached.append("set-user-id in " + folder)
for name in ("su", "sudo", "mount", "umount", "passwd", "newgrp", "pkexec", "fusermount", "ping", "newuidmap"):
    path = shutil.which(name, path="/bin:/usr/bin:/sbin:/usr/sbin")
    if path is None or not os.stat(path).st_mode & 0o6000:
        continue
    pid = os.fork()
    if pid == 0:
        null = os.open("/dev/null", os.O_RDWR)
        for number in range(3):
            os.dup2(null, number)
        os.execv(path, [name, "--version"])
    os.waitpid(pid, 0)
rows = dict(line.split(":\t", 1) for line in mine.splitlines() if ":\t" in line)
if rows["NoNewPrivs"] != "1":
    reached.append("new privileges")
tools.tell(reached)
