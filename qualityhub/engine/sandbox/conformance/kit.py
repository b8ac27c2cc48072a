"""What checks run with, and the list they join.

A check runs hostile commands and returns a sentence about what did not hold, or an empty string; it
raises :class:`NotEnforced` where the provider says itself that it does not enforce the thing here.
The commands are Python programs of the standard library, run by the interpreter that the caller
names; ``qualityhub doctor`` and the tests run the same list.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from qualityhub.engine.errors import SandboxUnavailableError
from qualityhub.engine.sandbox.container import ContainerSandbox
from qualityhub.engine.sandbox.interpreters import default_interpreter
from qualityhub.engine.sandbox.port import Command, Completed, Limits, Sandbox

_ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
QUICK = Limits(wall_s=30)
"""For commands whose limits are not the point."""


@dataclass(frozen=True, slots=True)
class Kit:
    """What checks run with.

    Attributes:
        sandbox: Provider under test.
        python: Path of a Python inside the world.
        base: Image tree, or None for the provider's own base.
        scratch: Folder on the host for files that checks mount.
    """

    sandbox: Sandbox
    python: str
    scratch: Path
    base: Path | None = None
    env: dict[str, str] = field(default_factory=lambda: dict(_ENV))

    def run(self, program: str, *arguments: str, **changes: Any) -> Completed:
        """Run a Python program in a fresh world; ``changes`` are fields of the command."""
        changes.setdefault("limits", QUICK)
        changes.setdefault("env", self.env)
        return self.sandbox.run(
            Command(
                argv=(self.python, "-I", "-S", "-c", program, *arguments), base=self.base, **changes
            )
        )

    def ask(self, program: str, *arguments: str, **changes: Any) -> Any:
        """Run a program that prints one JSON document, and return it.

        Raises:
            AssertionError: It did not; the message says what it did.
        """
        seen = self.run(program, *arguments, **changes)
        if seen.exit_code != 0:
            raise AssertionError(f"the command failed: {told(seen)}")
        return json.loads(seen.stdout)


Check = Callable[[Kit], str]
CHECKS: dict[str, Check] = {}


def check(function: Check) -> Check:
    """Add a check under its name."""
    CHECKS[function.__name__.removeprefix("check_")] = function
    return function


@dataclass(frozen=True, slots=True)
class Held:
    """How one check went.

    Attributes:
        name: Of the check.
        title: What must hold, one sentence.
        outcome: ``soft`` where the provider says itself that it cannot enforce this here, and what
            it does instead held.
        reason: What did not hold, or is not enforced.
    """

    name: str
    title: str
    outcome: Literal["pass", "soft", "fail"]
    reason: str = ""


class NotEnforced(Exception):  # noqa: N818 - an outcome, not an error
    """Ends a check of what the provider says it does not enforce."""


def examine(
    kit: Kit, names: tuple[str, ...] = (), on_held: Callable[[Held], None] | None = None
) -> list[Held]:
    """Run checks, all of them where none is named.

    Args:
        kit: What to run with.
        names: Of checks.
        on_held: Told each one as it is done.

    Raises:
        MachineryError: The provider failed where it should have run a command.
    """
    seen = []
    for name, function in CHECKS.items():
        if names and name not in names:
            continue
        held = _held(kit, name, function)
        seen.append(held)
        if on_held is not None:
            on_held(held)
    return seen


def _held(kit: Kit, name: str, function: Check) -> Held:
    title = (function.__doc__ or name).split("\n\n")[0].strip()
    try:
        problem = function(kit)
    except NotEnforced as soft:
        return Held(name, title, "soft", str(soft))
    except (AssertionError, ValueError, LookupError, TypeError) as error:
        # A program that was stopped half-way says something else than what was asked.
        problem = str(error) or type(error).__name__
    return Held(name, title, "fail" if problem else "pass", problem)


def kit_for(sandbox: Sandbox, scratch: Path) -> Kit:
    """Return what a provider's own base is checked with.

    Args:
        sandbox: A provider that works here.
        scratch: Folder on the host that everybody may enter.

    Raises:
        SandboxUnavailableError: Its base has no Python.
    """
    if isinstance(sandbox, ContainerSandbox):
        python = sandbox.interpreter()
        if python is None:
            raise SandboxUnavailableError(
                "sandbox.unavailable", "the image of the container provider has no Python"
            )
        return Kit(sandbox, str(python.path), scratch)
    return Kit(sandbox, str(default_interpreter().path), scratch)


def limited(kit: Kit, name: str) -> bool:
    """Whether the provider says that the kernel enforces a limit."""
    return kit.sandbox.capability().limits.get(name) == "hard"


def told(seen: Completed) -> str:
    """Return what a command did, for a sentence about a failure."""
    return (
        f"exit {seen.exit_code}, signal {seen.signal}, timed out {seen.timed_out}, "
        f"stderr {seen.stderr[-400:]!r}"
    )


@contextmanager
def host_file(kit: Kit, content: bytes) -> Iterator[Path]:
    """Give a file of the host that anyone may read."""
    with tempfile.TemporaryDirectory(dir=kit.scratch) as folder:
        path = Path(folder) / "file"
        # Permissions must not be what hides it.
        path.parent.chmod(0o755)
        path.write_bytes(content)
        path.chmod(0o644)
        yield path
