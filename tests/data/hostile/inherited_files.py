"""Open files that came along, of this process and of those beside it."""
import os
import tools
found = []
for number in range(3, 65536):
    try:
        os.fstat(number)
    except OSError:
        continue
    found.append("%d: %s" % (number, os.readlink("/proc/self/fd/%d" % number)))
for number in range(3):
    where = os.readlink("/proc/self/fd/%d" % number)
    if not where.startswith(("pipe:", "/dev/null", "socket:")):
        found.append("%d: %s" % (number, where))
tools.tell(found)
