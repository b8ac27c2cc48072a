"""Two thousand double forks into sessions of their own, all deaf; then it leaves."""
import os
import signal
import time
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
for _ in range(2000):
    try:
        if os.fork() == 0:
            os.setsid()
            try:
                if os.fork() == 0:
                    os.setsid()
            except OSError:
                pass
            while True:
                time.sleep(600)
    except OSError:
        pass
os._exit(5)
