"""Feed a running command, keep a bounded part of what it says, and see it dead in the end."""

from __future__ import annotations

import contextlib
import os
import select
import time

from qualityhub.engine.sandbox.launcher.usage import children, tree_bytes

PIECE = 65536
SAMPLE_S = 0.1


class Watch:
    """One command under way.

    Attributes:
        timed_out: The wall clock ended it.
        abandoned: The asking process is gone.
        over_memory: Sampling saw more memory than allowed and ended it.
        peak_bytes: Largest sampled memory of the tree.
    """

    def __init__(
        self, pid: int, *, stdin: int, stdout: int, stderr: int, channel: int, output_bytes: int
    ) -> None:
        """Take over a started command.

        Args:
            pid: bubblewrap's first process, a child of this one.
            stdin: Write end of the command's standard input.
            stdout: Read end of its standard output.
            stderr: Read end of its standard error.
            channel: Connection to the asking process; its end of file ends the command.
            output_bytes: Kept of each stream.
        """
        self.timed_out = self.abandoned = self.over_memory = False
        self.peak_bytes = 0
        self.dropped = 0
        self._pid = pid
        self._stdin = stdin
        self._channel = channel
        self._cap = output_bytes
        self._kept: dict[int, bytearray] = {stdout: bytearray(), stderr: bytearray()}
        self._stdout, self._stderr = self._kept[stdout], self._kept[stderr]
        self._poll = select.poll()
        for file in (stdout, stderr, stdin):
            os.set_blocking(file, False)
        self._open = {stdout, stderr}
        self._data = memoryview(b"")
        self._sampled = time.monotonic()

    @property
    def stdout(self) -> bytes:
        """What was kept of standard output."""
        return bytes(self._stdout)

    @property
    def stderr(self) -> bytes:
        """What was kept of standard error."""
        return bytes(self._stderr)

    def complain(self, text: str) -> None:
        """Add a line of ours to the end of standard error, in place of the last ones if need be."""
        line = b"\n" + text.encode(errors="backslashreplace") + b"\n"
        del self._stderr[max(0, self._cap - len(line)) :]
        self._stderr += line

    def until_dead(self, data: memoryview, deadline: float, memory_bytes: int) -> int:
        """Run to the end of the whole tree and return the wait status of its first process.

        Args:
            data: Fed to standard input.
            deadline: Monotonic time at which the tree is killed.
            memory_bytes: Sampled limit of the tree, 0 where the kernel enforces it.
        """
        pidfd = self.open_death()
        for file in self._open:
            self._poll.register(file, select.POLLIN)
        self._poll.register(pidfd, select.POLLIN)
        self._poll.register(self._channel, select.POLLRDHUP)
        self._data = data
        if data:
            self._poll.register(self._stdin, select.POLLOUT)
        else:
            os.close(self._stdin)
        try:
            while not self._over(deadline, memory_bytes):
                left = deadline - time.monotonic()
                if memory_bytes:
                    left = min(left, SAMPLE_S)
                events = dict(self._poll.poll(max(0.0, left) * 1000))
                if self._channel in events:
                    self.abandoned = True
                    break
                self._serve(events)
                if pidfd in events:
                    break
        finally:
            if self._data:
                os.close(self._stdin)
            os.close(pidfd)
        status = self.end()
        self._drain()
        return status

    def open_death(self) -> int:
        """Return a new descriptor that becomes readable once the first process is dead."""
        return os.pidfd_open(self._pid)

    def end(self) -> int:
        """End the whole tree and return the wait status of its first process."""
        return kill_all(self._pid)

    def _over(self, deadline: float, memory_bytes: int) -> bool:
        """Whether the command must end now: its time is up or its memory is too much."""
        now = time.monotonic()
        if now >= deadline:
            self.timed_out = True
        elif memory_bytes and now - self._sampled >= SAMPLE_S:
            self.peak_bytes = max(self.peak_bytes, tree_bytes(self._pid))
            # Looking at a large tree takes a while: the pause comes after it.
            self._sampled = time.monotonic()
            self.over_memory = self.peak_bytes > memory_bytes
        return self.timed_out or self.over_memory

    def _serve(self, events: dict[int, int]) -> None:
        if self._data and self._stdin in events:
            self._data = self._feed(self._data)
        for file in tuple(self._open):
            if file in events:
                self._take(file)

    def _feed(self, data: memoryview) -> memoryview:
        try:
            data = data[os.write(self._stdin, data[:PIECE]) :]
        except BlockingIOError:
            return data
        except BrokenPipeError:
            data = data[:0]
        if not data:
            self._poll.unregister(self._stdin)
            os.close(self._stdin)
        return data

    def _take(self, file: int) -> bool:
        try:
            piece = os.read(file, PIECE)
        except BlockingIOError:
            return False
        if not piece:
            self._poll.unregister(file)
            self._open.discard(file)
            return False
        kept = self._kept[file]
        room = max(0, self._cap - len(kept))
        kept += piece[:room]
        self.dropped += max(0, len(piece) - room)
        return True

    def _drain(self) -> None:
        # Every writer is dead: what the pipes still hold is all there will ever be.
        for file in tuple(self._open):
            while self._take(file):
                pass


def kill_all(pid: int) -> int:
    """Kill every process below this one and return the wait status of ``pid``.

    The keeper is a subreaper: when bubblewrap dies, its process id namespace's init becomes our
    child, and its own death takes the rest along; the kernel reports it only after that.
    """
    status = 0
    while True:
        for child in children(os.getpid()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, 9)
        try:
            done, seen = os.waitpid(-1, 0)
        except ChildProcessError:
            return status
        if done == pid:
            status = seen
