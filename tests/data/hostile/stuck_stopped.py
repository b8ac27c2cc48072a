"""Stops itself and its children for good."""
import os
import signal
for _ in range(4):
    if os.fork() == 0:
        os.kill(os.getpid(), signal.SIGSTOP)
os.kill(os.getpid(), signal.SIGSTOP)
os._exit(0)
