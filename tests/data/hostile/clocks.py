"""Sets every clock it can name."""
import ctypes
import os
import tools
reached = []
zeros = ctypes.create_string_buffer(256)
moment = (ctypes.c_long * 2)(1, 0)
wanted = ctypes.create_string_buffer((0x0100).to_bytes(4, "little") + bytes(4) + (1).to_bytes(8, "little"), 256)
if tools.call("clock_settime", 0, moment) >= 0:
    reached.append("clock_settime")
if tools.call("settimeofday", moment, 0) >= 0:
    reached.append("settimeofday")
if tools.call("adjtimex", wanted) >= 0:
    reached.append("adjtimex")
if tools.call("clock_adjtime", 0, wanted) >= 0:
    reached.append("clock_adjtime")
for path in ("/dev/rtc", "/dev/rtc0", "/sys/class/rtc/rtc0/since_epoch"):
    if tools.can(lambda: os.close(os.open(path, os.O_RDWR))):
        reached.append(path)
tools.tell(reached)
