"""Kernel buffers: pipes and sockets filled to the brim, with nobody to read them."""
import fcntl
import os
import socket
import tools
total = 0
held = []
try:
    while True:
        pair = os.pipe()
        held.append(pair)
        try:
            fcntl.fcntl(pair[1], 1031, 1 << 20)
        except OSError:
            pass
        os.set_blocking(pair[1], False)
        try:
            while True:
                total += os.write(pair[1], b"x" * 65536)
        except BlockingIOError:
            pass
except OSError:
    for pair in held[-64:]:
        os.close(pair[0])
        os.close(pair[1])
    del held[-64:]
try:
    while True:
        pair = socket.socketpair()
        held.append(pair)
        pair[0].setblocking(False)
        pair[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 30)
        while True:
            try:
                total += pair[0].send(b"x" * 65536)
            except BlockingIOError:
                break
except OSError:
    pass
tools.tell(["half a gigabyte of kernel buffers"] if total > 512 << 20 else [], buffered=total)
