"""A child held in a tracing stop by a parent that never lets go."""
import os
import time
import tools
pid = os.fork()
if pid == 0:
    tools.call("ptrace", 0, 0, 0, 0)
    os.kill(os.getpid(), 19)
    os._exit(0)
os.waitpid(pid, 2)
while True:
    time.sleep(600)
