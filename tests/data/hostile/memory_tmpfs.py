"""Fills every writable place that lives in memory."""
import os
import tools
total = 0
for folder in ("/dev/shm", "/tmp", "/logs", "/run", "/var/tmp", "/"):
    try:
        with open(folder + "/fill", "wb", buffering=0) as file:
            for _ in range(400):
                total += file.write(b"x" * (1 << 20))
    except OSError:
        pass
tools.tell(["more than the disk limit"] if total > 20 << 20 else [], written=total)
