"""Calls that reach deep into the kernel."""
import ctypes
import os
import socket
import tools
reached = []
zeros = ctypes.create_string_buffer(256)
for label, call in {
    "io_uring": ("io_uring_setup", 1, zeros), "bpf": ("bpf", 0, zeros, 64),
    "userfaultfd": ("userfaultfd", 1), "perf_event_open": ("perf_event_open", zeros, 0, -1, -1, 0),
    "init_module": ("init_module", zeros, 8, b""), "finit_module": ("finit_module", 0, b"", 0),
    "kexec_load": ("kexec_load", 0, 0, 0, 0), "syslog": ("syslog", 3, zeros, 64),
    "fanotify": ("fanotify_init", 0x4, 0), "quotactl": ("quotactl", 0, b"/", 0, zeros),
    "iopl": ("iopl", 3), "modify_ldt": ("modify_ldt", 0, zeros, 16), "reboot": ("reboot", 1, 2, 0, 0),
    "move_pages": ("move_pages", 1, 0, 0, 0, 0, 0), "vhangup": ("vhangup",),
    "clone3": ("clone3", zeros, 88),
}.items():
    if tools.call(*call) >= 0:
        reached.append(label)
if tools._X86 and tools.libc.syscall(ctypes.c_long(0x40000000 | 39)) >= 0:
    reached.append("x32")
for family, kind, label in ((38, socket.SOCK_SEQPACKET, "af_alg"), (40, socket.SOCK_STREAM, "vsock"),
                            (17, socket.SOCK_RAW, "packet"), (2, socket.SOCK_RAW, "raw ip")):
    if tools.can(lambda: socket.socket(family, kind, 1 if label == "raw ip" else 0).close()):
        reached.append(label)
tools.tell(reached)
