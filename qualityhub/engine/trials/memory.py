"""Give the memory of large outputs back to the system as soon as they are let go of."""

from __future__ import annotations

import ctypes
from functools import cache

LARGE = 2 * 1024 * 1024
_KEPT = 8 * 1024 * 1024
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


@cache
def return_large_blocks() -> None:
    """Have the C library take large blocks from the system one by one, for the whole process.

    It raises its own threshold for that with every block that is freed, up to 32 MiB, and then
    keeps about as much for each thread that ever held a large output, for good.
    """
    try:
        option = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        # Not every C library keeps memory, nor has this to ask for it.
        return
    option(_M_MMAP_THRESHOLD, LARGE)
    option(_M_TRIM_THRESHOLD, _KEPT)
