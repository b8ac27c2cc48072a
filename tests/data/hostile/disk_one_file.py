"""One file as large as it gets."""
import errno
import tools
total, why = 0, 0
try:
    with open("/tmp/big", "wb", buffering=0) as file:
        for _ in range(2000):
            total += file.write(b"x" * (1 << 20))
except OSError as error:
    why = error.errno
tools.tell(["two gigabytes"] if total > 32 << 20 else [], why=errno.errorcode.get(why, ""))
