"""Holds signals back where an exception out of their handler would leave a lock taken.

Python runs a handler between any two instructions of the main thread. Where it raises, as Ctrl-C's
does, inside the ``__enter__`` of a condition or while futures are being waited for, the lock that
was just taken is never released, and whoever wants it next waits forever.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

# SIGUSR1 is what a queue's soft time limit comes as.
_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)


class Held:
    """What came in while signals are held back."""

    def __init__(self) -> None:
        self._before: dict[int, Callable[[int, FrameType | None], Any]] = {}
        self._came: list[int] = []
        self._told = False

    def deliver(self) -> None:
        """Let the handlers of what came in run now, where they may raise.

        Raises:
            BaseException: What a handler raises; KeyboardInterrupt as a rule.
        """
        while self._came:
            self._told = True
            number = self._came.pop(0)
            self._before[number](number, None)

    def begin(self) -> None:
        """Hold back what has a handler in Python; anything else does not raise."""
        for number in _NUMBERS:
            before = signal.getsignal(number)
            if callable(before):
                self._before[number] = before
                signal.signal(number, self._hear)

    def end(self) -> None:
        """Put the handlers back."""
        for number, before in self._before.items():
            signal.signal(number, before)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if not (self._came or self._told):
            self._came.append(number)
            return
        # Asked again: whoever does so does not want to wait for a safe place.
        with contextlib.suppress(BaseException):
            self.deliver()
        self._before[number](number, frame)


@contextlib.contextmanager
def held() -> Iterator[Held]:
    """Hold back signals whose handlers may raise, until :meth:`Held.deliver` or the end.

    A second signal is not held back. In another thread than the main one nothing is done: no
    handler runs there. May be nested: the outer one hears what the inner one held.
    """
    holding = Held()
    if threading.current_thread() is threading.main_thread():
        holding.begin()
    try:
        yield holding
    finally:
        holding.end()
        holding.deliver()
