"""Writes without end to the streams it is told."""
import os
import sys
block = b"x" * 65536
while True:
    for word in sys.argv[1]:
        os.write(int(word), block)
