"""Starts itself with as many words and variables as the kernel takes, again and again."""
import os
import sys
if len(sys.argv) < 2:
    for size in (40, 20, 10):
        try:
            os.execve(sys.executable, [sys.executable, "-S", __file__] + ["x" * 100_000] * size,
                      {"A%d" % i: "y" * 100_000 for i in range(size // 2)})
        except OSError:
            pass
os.write(1, b'{"reached": []}\n')
