"""Forks twice into a session of its own, ignores everything, keeps or closes its streams, lives on."""
import os
import signal
import sys
import time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
        if sys.argv[1] == "closed":
            os.closerange(0, 64)
        os.chdir("/")
        while True:
            try:
                with open("/logs/late", "a") as file:
                    file.write("x")
            except OSError:
                pass
            time.sleep(0.01)
    os._exit(0)
time.sleep(0.1)
os._exit(3)
