"""Reads nothing of what it is fed, and gives the reading end to a process that lives on."""
import os
import time
if os.fork() == 0:
    time.sleep(600)
os._exit(2)
