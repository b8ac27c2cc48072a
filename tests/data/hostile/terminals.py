"""Terminals: the caller's, the kernel's, and as many new ones as there are."""
import fcntl
import os
import tools
reached = []
for path in ("/dev/tty", "/dev/console", "/dev/tty0", "/dev/tty1", "/dev/vcs"):
    if tools.can(lambda: os.close(os.open(path, os.O_RDWR | os.O_NOCTTY))):
        reached.append(path)
for number in range(3):
    for code in (0x5412, 0x541C, 0x540E):
        if tools.can(lambda: fcntl.ioctl(number, code, b"x")):
            reached.append("ioctl %x on %d" % (code, number))
held = []
try:
    while len(held) < 20_000:
        held.append(os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY))
except OSError:
    pass
tools.tell(reached, terminals=len(held))
