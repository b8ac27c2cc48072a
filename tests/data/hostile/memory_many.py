"""Many small processes that are too much together."""
import os
import time
for _ in range(40):
    try:
        if os.fork() == 0:
            block = bytearray(b"x") * (8 << 20)
            time.sleep(60)
            os._exit(len(block) & 1)
    except OSError:
        break
time.sleep(60)
