"""Fills a pipe of its own and blocks inside the kernel, in forty threads."""
import os
import threading
threading.stack_size(256 * 1024)
_, end = os.pipe()
block = b"x" * (1 << 20)
for _ in range(40):
    threading.Thread(target=lambda: os.write(end, block), daemon=True).start()
os.write(end, block)
