"""Busy processes, each in a session of its own: the scheduler may share time between sessions."""
import os
for _ in range(60):
    try:
        if os.fork() == 0:
            os.setsid()
            break
    except OSError:
        break
while True:
    pass
