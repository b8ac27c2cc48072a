"""The launcher: waits for connections, forks a keeper for each, writes id maps, tidies up.

It is single-threaded and holds nothing of any command. When the asking process goes away, in
whatever manner, the control connection closes and every keeper and world ends with it.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
from typing import Any

from qualityhub.engine.sandbox.launcher import cgroups, kernel
from qualityhub.engine.sandbox.launcher.building import Host
from qualityhub.engine.sandbox.launcher.keeper import reset_signals, serve
from qualityhub.engine.sandbox.launcher.server import TRIALS

_RETRY_MS = 200


class Launcher:
    """The loop and what it must tidy up."""

    def __init__(self, control: socket.socket, settings: dict[str, Any]) -> None:
        """Look at the host.

        Args:
            control: Sequenced packets; each carries the connection of one command.
            settings: See ``BwrapSandbox``.
        """
        self._control = control
        self._maps: dict[str, list[list[int]]] = settings["maps"]
        self._tools: dict[str, str] = settings["map_tools"]
        is_root = os.geteuid() == 0
        hierarchies = cgroups.detect(_text("/proc/self/cgroup"), _text("/proc/self/mountinfo"))
        cgroups.sweep(hierarchies)
        self._host = Host(
            is_root=is_root,
            id_base=settings["id_base"],
            userns=self._translating_namespace() if is_root else -1,
            hierarchies=hierarchies,
            bwrap=settings["bwrap"],
            libraries=settings["libraries"],
            seccomp=bytes.fromhex(settings["seccomp"]),
            building=bytes.fromhex(settings["building"]),
        )
        self._count = 0
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)
        # By file: process id of the keeper whose death it reports.
        self._deaths: dict[int, int] = {}
        # By file: connection over which a keeper asks for its id map.
        self._askers: dict[int, tuple[int, socket.socket]] = {}
        self._names: dict[int, str] = {}
        self._busy: list[str] = []

    def announce(self) -> None:
        """Tell the asking process what this host can limit."""
        limited = sorted({name for place in self._host.hierarchies for name in place.controllers})
        self._control.send(
            json.dumps({"limited": limited, "translates": self._host.userns >= 0}).encode()
        )

    def run(self) -> None:
        """Serve until the asking process is gone."""
        gc.collect()
        gc.freeze()
        while True:
            for file, _ in self._poll.poll(_RETRY_MS if self._busy else None):
                if file == self._control.fileno():
                    if not self._accept():
                        self._end()
                        return
                elif file in self._deaths:
                    self._bury(file)
                elif file in self._askers:
                    self._map(file)
            self._busy = [folder for folder in self._busy if not cgroups.remove(folder)]

    def _accept(self) -> bool:
        try:
            message, files, _, _ = socket.recv_fds(self._control, 16, 1)
        except OSError:
            return False
        if not message or not files:
            return False
        # Received files are inheritable; nothing else runs here, so no fork can come in between.
        channel = socket.socket(fileno=files[0])
        channel.set_inheritable(False)
        ours, theirs = socket.socketpair()
        self._count += 1
        name = f"qh-{os.getpid()}-{self._count}"
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            kernel.die_with_parent(parent)
            reset_signals()
            self._control.close()
            ours.close()
            for file in self._deaths:
                os.close(file)
            for _, asker in self._askers.values():
                asker.close()
            serve(channel, theirs, self._host, name)
        channel.close()
        theirs.close()
        death = os.pidfd_open(pid)
        self._deaths[death] = pid
        self._names[pid] = name
        self._askers[ours.fileno()] = (pid, ours)
        self._poll.register(death, select.POLLIN)
        self._poll.register(ours, select.POLLIN)
        return True

    def _map(self, file: int) -> None:
        pid, asker = self._askers[file]
        asked = b""
        with contextlib.suppress(OSError):
            asked = asker.recv(1)
        if asked == b"m":
            with contextlib.suppress(OSError):
                asker.sendall(b"y" if self._write_maps(pid) else b"n")
            return
        self._poll.unregister(file)
        del self._askers[file]
        asker.close()

    def _write_maps(self, pid: int) -> bool:
        try:
            if self._tools:
                for kind in ("uid", "gid"):
                    numbers = [str(number) for row in self._maps[kind] for number in row]
                    subprocess.run(
                        [self._tools[kind], str(pid), *numbers],
                        check=True,
                        capture_output=True,
                        env={},
                    )
                return True
            if os.geteuid() != 0:
                _put(f"/proc/{pid}/setgroups", "deny")
            for kind in ("uid", "gid"):
                rows = "\n".join(" ".join(map(str, row)) for row in self._maps[kind])
                _put(f"/proc/{pid}/{kind}_map", rows)
        except (OSError, subprocess.CalledProcessError):
            return False
        return True

    def _translating_namespace(self) -> int:
        """Return a user namespace with our map, or -1; it never runs anything."""
        base = self._maps["uid"][0][1]
        ready, tell = os.pipe()
        hold, release = os.pipe()
        pid = os.fork()
        if pid == 0:
            with contextlib.suppress(BaseException):
                os.close(release)
                os.setresgid(base, base, base)
                os.setresuid(base, base, base)
                kernel.unshare(kernel.CLONE_NEWUSER)
                os.write(tell, b"y")
                os.read(hold, 1)
            os._exit(0)
        os.close(tell)
        os.close(hold)
        try:
            if os.read(ready, 1) != b"y" or not self._write_maps(pid):
                return -1
            return os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return -1
        finally:
            os.close(ready)
            os.close(release)
            os.waitpid(pid, 0)

    def _bury(self, file: int) -> None:
        pid = self._deaths.pop(file)
        self._poll.unregister(file)
        os.close(file)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)
        for folder in self._folders(self._names.pop(pid)):
            if not cgroups.remove(folder):
                self._busy.append(folder)

    def _folders(self, name: str) -> list[str]:
        """Return the groups that a keeper may have made."""
        return [
            f"{place.folder}/{name}{suffix}"
            for place in self._host.hierarchies
            for suffix in ("", TRIALS)
        ]

    def _end(self) -> None:
        for pid in self._names:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
        for file in tuple(self._deaths):
            pid = self._deaths[file]
            name = self._names[pid]
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
            for folder in self._folders(name):
                cgroups.remove(folder, patience_s=2.0)
        for folder in self._busy:
            cgroups.remove(folder, patience_s=2.0)


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _put(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


def main() -> None:
    """Serve on the control connection whose number is the only argument."""
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # A terminal's Ctrl-C reaches the whole group; the asking process decides when we end.
        signal.signal(number, signal.SIG_IGN)
    settings = json.loads(control.recv(1024 * 1024))
    launcher = Launcher(control, settings)
    launcher.announce()
    launcher.run()
