"""A gigabyte that packs to almost nothing, without a line's end; then bytes that unpack to it."""
import os
import zlib
zeros = b"\0" * (1 << 20)
for _ in range(192):
    os.write(1, zeros)
packer = zlib.compressobj(9)
for _ in range(256):
    os.write(2, packer.compress(zeros))
os.write(2, packer.flush())
os._exit(0)
