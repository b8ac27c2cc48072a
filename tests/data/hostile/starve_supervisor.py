"""Takes every process there is to have, busy all of them, writes a file and leaves."""
import os
for _ in range(500):
    try:
        if os.fork() == 0:
            while True:
                pass
    except OSError:
        break
with open("/logs/done", "w") as file:
    file.write("still read back")
os._exit(4)
