"""Tells the processes of a worker's pool that it is about to end.

One byte of shared memory: no lock that a signal handler could find taken.
"""

from __future__ import annotations

import mmap
from typing import Any

from celery.signals import worker_shutting_down

_flag = mmap.mmap(-1, 1)  # Made before the fork, thus shared with every process of the pool.


def stopping() -> bool:
    """Tell whether the worker has been asked to end."""
    return _flag[0] != 0


@worker_shutting_down.connect
def begin(**_: Any) -> None:
    """Let batches in hand end early and go back."""
    _flag[0] = 1
