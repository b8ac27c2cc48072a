"""The sandbox port: run one foreign command in a fresh world, and its failure contract.

What is a *result*: whatever the foreign command does. All of these come back as
:class:`Completed`:

* it exits (``exit_code``) or a signal ends it (``signal``; an exit with 128 + n reads as signal n);
* it cannot be started: 127 where its program, or the shell that a container starts with, is not in
  the world; 126 where it may not be executed or its words are none (a NUL byte, no text);
* it runs out of time: ``timed_out``, signal 9, with the output and the files it left;
* it runs out of memory: ``out_of_memory``, whatever else ended it;
* it writes too much: refused inside where the limit is hard, ended by signal 9 where it is soft;
* it floods its output, which is cut and counted; leaves processes behind, which are dead before
  the answer; leaves links, pipes or folders where files should be, which are not collected.

What is an *exception*: only our own machinery. :class:`SandboxUnavailableError` means that this
host cannot run it: no bubblewrap or no namespaces for it, no engine that answers, an image that is
neither in the engine nor to be had. :class:`MachineryError` means that a world could not be built,
watched or read back although it should have been: the launcher or the engine lost under way or
answering with an error, a mount's source gone, the image removed meanwhile, the sandbox closed
while the command ran. Then nothing of the world goes on running as soon as we can say so, and the
same command may be tried again. Neither says anything about the environment, and neither may
become a finding. Nothing else is raised.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Mount:
    """One folder of the world.

    Attributes:
        target: Absolute path inside the world.
        source: Host folder or file; None for an empty writable folder.
        mode: ``ro`` read-only; ``overlay`` writable copy-on-write over ``source``, discarded after
            the trial; ``scratch`` empty, and anybody may write. Both writable kinds share the disk
            limit.
    """

    target: str
    source: Path | None = None
    mode: Literal["ro", "overlay", "scratch"] = "ro"


@dataclass(frozen=True, slots=True)
class Limits:
    """What one command may use.

    Attributes:
        wall_s: Seconds until the whole process tree is killed.
        cpu_s: CPU seconds per process.
        memory_bytes: For the whole tree.
        pids: Processes and threads at once.
        disk_bytes: Everything written into the world.
        files: Inodes created in the world.
        open_files: File descriptors per process.
        output_bytes: Kept of stdout and of stderr, each; the rest is dropped and counted.
        collect_bytes: Kept of each collected file.
    """

    wall_s: float = 30.0
    cpu_s: int = 30
    memory_bytes: int = 1024 * MIB
    pids: int = 256
    disk_bytes: int = 256 * MIB
    files: int = 100_000
    open_files: int = 1024
    output_bytes: int = 1 * MIB
    collect_bytes: int = 1 * MIB


@dataclass(frozen=True, slots=True)
class Command:
    """One foreign command and the world it runs in.

    Attributes:
        argv: Program and arguments; the program is looked up inside the world.
        env: The complete environment; nothing of the caller's leaks in.
        mounts: On top of the provider's base (``base``).
        base: Host folder that is ``/`` of the world (an exported image), or None for the
            rehearsal base: the host's ``/usr``, a generated ``/etc``, the interpreter.
        cwd: Working directory inside the world.
        stdin: Bytes fed to the command.
        network: True only for build sandboxes; trials have a private loopback alone.
        hostname: Name of the world.
        umask: File mode mask of the command.
        first: Whether the command itself is the first process of its world, as in a container:
            no signal that it has no handler for ends it from inside, and it inherits orphans.
            Otherwise providers that can put a small init there.
        cpus: CPUs that the command may use and sees; 0 for all of ours.
        collect: Absolute paths inside the world that are read back after every process is dead.
            Missing ones are simply absent from the result; links are never followed.
        keep: Host folder that receives a copy of ``keep_from`` after a successful exit
            (dependency layers); None for trials.
        keep_from: Path inside the world that ``keep`` copies.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[Mount, ...] = ()
    base: Path | None = None
    cwd: str = "/"
    stdin: bytes = b""
    network: bool = False
    hostname: str = "sandbox"
    umask: int = 0o022
    first: bool = False
    cpus: int = 0
    collect: tuple[str, ...] = ()
    keep: Path | None = None
    keep_from: str = ""
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True)
class Completed:
    """What a command did.

    Attributes:
        exit_code: Exit status, or None when a signal ended it.
        signal: Signal number, or None.
        timed_out: The wall-clock limit ended it.
        out_of_memory: The memory limit ended it or a child of it.
        stdout: At most ``output_bytes``.
        stderr: At most ``output_bytes``.
        dropped_bytes: Output beyond the cap, both streams together.
        collected: Content by path for those of ``collect`` that were regular files.
        wall_s: Seconds from start to death.
        cpu_s: User plus system seconds of the tree, as far as the host can tell.
        peak_memory_bytes: Largest resident size seen, 0 where unknown.
    """

    exit_code: int | None
    signal: int | None
    timed_out: bool
    out_of_memory: bool
    stdout: bytes
    stderr: bytes
    dropped_bytes: int
    collected: Mapping[str, bytes]
    wall_s: float
    cpu_s: float
    peak_memory_bytes: int


@dataclass(frozen=True, slots=True)
class Capability:
    """What a provider can do on this host; printed by ``qualityhub doctor``.

    Attributes:
        provider: Provider name.
        usable: Whether it can run anything here.
        reason: Why not, or what is limited.
        remedy: What an operator can do about it.
        limits: Per limit ``hard`` (enforced by the kernel), ``soft`` (sampled) or ``none``.
        ownership: True where a range of user ids is mapped, so that file ownership is real.
    """

    provider: str
    usable: bool
    reason: str = ""
    remedy: str = ""
    limits: Mapping[str, str] = field(default_factory=dict)
    ownership: bool = False


class Sandbox(Protocol):
    """A provider. One instance may be used from several threads at once."""

    name: str

    def capability(self) -> Capability:
        """Say what this provider can do here; cheap after the first call, never raises."""
        ...

    def run(self, command: Command) -> Completed:
        """Run one command to its end in a fresh world that is gone afterwards.

        Raises:
            SandboxUnavailableError: This host cannot run it at all.
            MachineryError: The world could not be built or read back.
        """
        ...

    def close(self) -> None:
        """End every helper process; running commands are killed."""
        ...


class Server(Protocol):
    """Runs commands that have a world and a program in common, one at a time.

    What they need is loaded once; each still gets a process and a world of its own. It is for one
    thread at a time, and any failure of it is its end: the same command is then run by the
    sandbox itself.
    """

    def run(self, command: Command) -> Completed:
        """Run one command as :meth:`Sandbox.run` would.

        Raises:
            MachineryError: The server is lost, or is not for this command.
        """
        ...

    def close(self) -> None:
        """End it; a running command is killed."""
        ...


@runtime_checkable
class Serving(Protocol):
    """A sandbox that can also serve."""

    def serve(self, command: Command, preload: tuple[str, ...] = ()) -> Server:
        """Start a server for commands that differ in input and limits alone.

        Args:
            command: One of them: a Python interpreter and its program.
            preload: Modules to import once, from the dependency layer, our own programs or the
                standard library; never the environment's own.

        Raises:
            SandboxUnavailableError: This host cannot run it at all.
            MachineryError: Such commands are not served, or the server did not start.
        """
        ...
