"""An engine that fails on demand: a proxy in front of the real one."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from urllib.parse import urlsplit

_ERROR = b'{"message": "the disk of the engine is full"}'


class EngineProxy:
    """Passes requests on, one per connection, until told otherwise.

    Attributes:
        refuse: Requests whose first line matches are answered with status 500.
        hang: Requests whose first line matches are never answered.
        seen: First lines of all requests.
    """

    def __init__(self, path, engine):
        self.refuse = self.hang = ""
        self.seen = []
        self._engine = urlsplit(engine).path
        self._open = []
        self._threads = []
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(path))
        self._server.listen(64)
        self.address = f"unix://{path}"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self):
        """Lose the engine: every connection ends, none begins."""
        for one in (self._server, *self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for thread in self._threads:
            thread.join(5)
        for one in self._open:
            one.close()

    def _accept(self):
        while True:
            try:
                caller, _ = self._server.accept()
            except OSError:
                return
            self._start(self._serve_unless_cut, caller)

    def _serve_unless_cut(self, caller):
        """Serve; a side that is gone by then, as after a cut, is the end of both."""
        try:
            self._serve(caller)
        except OSError:
            with contextlib.suppress(OSError):
                caller.shutdown(socket.SHUT_RDWR)

    def _start(self, target, *arguments):
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _serve(self, caller):
        self._open.append(caller)
        head = b""
        while b"\r\n\r\n" not in head:
            piece = caller.recv(65536)
            if not piece:
                return
            head += piece
        line = head.split(b"\r\n")[0].decode()
        self.seen.append(line)
        if self.hang and re.search(self.hang, line):
            return
        if self.refuse and re.search(self.refuse, line):
            start = b"HTTP/1.1 500 Internal Server Error\r\nContent-Type: application/json\r\n"
            size = b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(_ERROR)
            caller.sendall(start + size + _ERROR)
            caller.shutdown(socket.SHUT_WR)
            return
        if b"upgrade: tcp" not in head.lower():
            # One request per connection, so that each first line is seen.
            head = re.sub(rb"(?i)\r\nconnection: [^\r]*", b"", head)
            head = head.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)
        engine = socket.socket(socket.AF_UNIX)
        self._open.append(engine)
        engine.connect(self._engine)
        engine.sendall(head)
        self._start(_pass, caller, engine)
        _pass(engine, caller)


def _pass(source, target):
    with contextlib.suppress(OSError):
        while piece := source.recv(65536):
            target.sendall(piece)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
