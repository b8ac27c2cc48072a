"""Asks for more than it was given."""
import os
import resource
import struct
import tools
reached = []
for name in ("RLIMIT_CPU", "RLIMIT_NOFILE", "RLIMIT_NPROC", "RLIMIT_DATA", "RLIMIT_CORE", "RLIMIT_AS",
             "RLIMIT_MEMLOCK", "RLIMIT_RTPRIO", "RLIMIT_NICE", "RLIMIT_FSIZE"):
    kind = getattr(resource, name, None)
    if kind is None:
        kind = {"RLIMIT_NICE": 13, "RLIMIT_RTPRIO": 14}[name]
    _, hard = resource.getrlimit(kind)
    if hard == resource.RLIM_INFINITY:
        continue
    for wanted in (hard + 1, resource.RLIM_INFINITY):
        if tools.can(lambda: resource.setrlimit(kind, (wanted, wanted))):
            reached.append(name)
            break
if tools.can(lambda: os.nice(-5)):
    reached.append("nice")
if tools.can(lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))):
    reached.append("real time")
if tools.call("sched_setattr", 0, struct.pack("=IIQiIQQQ", 48, 6, 0, 0, 0, 10**6, 10**8, 10**8), 0) >= 0:
    reached.append("deadline")
if tools.call("ioprio_set", 1, 0, 1 << 13) >= 0:
    reached.append("real time disk")
tools.tell(reached)
