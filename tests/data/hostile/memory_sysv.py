"""Shared memory of the old kind, filled and detached again."""
import ctypes
import os
import tools
libc = tools.libc
libc.shmat.restype = ctypes.c_void_p
for _ in range(400):
    number = libc.shmget(0, ctypes.c_size_t(16 << 20), 0o1600)
    if number < 0:
        break
    place = libc.shmat(number, None, 0)
    ctypes.memset(place, 120, 16 << 20)
    libc.shmdt(ctypes.c_void_p(place))
os._exit(9)
