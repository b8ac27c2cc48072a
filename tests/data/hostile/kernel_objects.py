"""Things that are counted per user: watches, timers, locks, queues, pending signals."""
import os
import select
import signal
import tools
counts = {"inotify": 0, "epoll": 0}
try:
    while counts["inotify"] < 2000:
        if tools.call("inotify_init1", 0) < 0:
            break
        counts["inotify"] += 1
    while counts["epoll"] < 400:
        select.epoll().fileno()
        counts["epoll"] += 1
except OSError:
    pass
signal.pthread_sigmask(signal.SIG_BLOCK, {40})
sent = 0
for _ in range(100_000):
    if not tools.can(lambda: os.kill(os.getpid(), 40)):
        break
    sent += 1
tools.tell([], sent=sent, **counts)
