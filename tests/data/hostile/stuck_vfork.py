"""A parent that waits for a child's exec which never comes: no signal handler can run."""
import signal
import time
import tools
for number in range(1, 32):
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_IGN)
if tools.call("clone", 0x4000 | 17, 0, 0, 0, 0) == 0:
    while True:
        time.sleep(600)
