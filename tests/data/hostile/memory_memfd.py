"""Memory that belongs to no file system and to no address space."""
import os
held = []
for number in range(400):
    file = os.memfd_create("m%d" % number)
    held.append(file)
    for _ in range(16):
        os.write(file, b"x" * (1 << 20))
os._exit(9)
