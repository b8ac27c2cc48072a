"""Signals to everything it can name."""
import os
import signal
import sys
import tools
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1):
    signal.signal(number, signal.SIG_IGN)
reached = []
for pid in sys.argv[1:]:
    if tools.can(lambda: os.kill(int(pid), 0)) and not os.path.exists("/proc/" + pid):
        reached.append("process %s of the host" % pid)
for pid in (1, os.getppid(), 0, -1):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGQUIT):
        tools.can(lambda: os.kill(pid, number))
    if pid != 0:
        tools.can(lambda: os.kill(pid, signal.SIGKILL))
        tools.can(lambda: os.kill(pid, signal.SIGSTOP))
tools.tell(reached)
