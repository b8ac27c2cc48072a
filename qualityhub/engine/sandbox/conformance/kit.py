"""What checks run with, and the list they join.

A check runs hostile commands and returns a sentence about what did not hold, or an empty string.
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
from typing import Any

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


def run_checks(kit: Kit, names: tuple[str, ...] = ()) -> dict[str, str]:
    """Run checks and return what did not hold by name; empty where everything held."""
    failed = {}
    for name, function in CHECKS.items():
        if names and name not in names:
            continue
        try:
            problem = function(kit)
        except AssertionError as error:
            problem = str(error)
        if problem:
            failed[name] = problem
    return failed


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
