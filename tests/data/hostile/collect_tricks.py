"""Puts everything but a plain file where files are read back."""
import os
import socket
import stat
import tools

def attempt(action, *words):
    try:
        action(*words)
    except OSError:
        pass

os.mkdir("/logs/real")
with open("/logs/real/secret", "w") as file:
    file.write("through a link")
os.symlink("/etc/passwd", "/logs/link")
os.symlink("/proc/1/environ", "/logs/proc")
os.symlink("../../../../../../etc/hostname", "/logs/climb")
os.symlink("/logs/loop", "/logs/loop")
os.symlink("/logs/real", "/logs/folder")
attempt(os.link, "/etc/shadow", "/logs/hard")
attempt(os.link, "/usr/bin/env", "/logs/hardusr")
os.mkfifo("/logs/fifo")
socket.socket(socket.AF_UNIX).bind("/logs/socket")
attempt(os.mknod, "/logs/device", stat.S_IFCHR | 0o666, os.makedev(1, 5))
attempt(os.mknod, "/logs/block", stat.S_IFBLK | 0o666, os.makedev(8, 0))
os.mkdir("/logs/directory")
with open("/logs/plain", "w") as file:
    file.write("plain")
with open("/logs/shut", "w") as file:
    file.write("shut")
os.chmod("/logs/shut", 0)
tools.tell([name for name in ("device", "block") if os.path.lexists("/logs/" + name)])
