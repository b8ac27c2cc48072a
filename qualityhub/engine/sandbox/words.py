"""Words that no operating system can hand to a program: a result, never a way around a provider."""

from __future__ import annotations

import os

from qualityhub.engine.sandbox.port import Command, Completed

NOT_STARTED = 126


def refuse(command: Command) -> Completed | None:
    """Return the result of a command that cannot be started because of its words, else None.

    A NUL byte in an argument or a variable would otherwise end one word and begin another where
    words are packed.
    """
    problem = _problem(command)
    return not_started(NOT_STARTED, problem) if problem else None


def not_started(code: int, problem: str) -> Completed:
    """Return the result of a command that never ran."""
    return Completed(
        exit_code=code,
        signal=None,
        timed_out=False,
        out_of_memory=False,
        stdout=b"",
        stderr=f"cannot start: {problem}\n".encode(),
        dropped_bytes=0,
        collected={},
        wall_s=0.0,
        cpu_s=0.0,
        peak_memory_bytes=0,
    )


def _problem(command: Command) -> str:
    if not command.argv or not command.argv[0]:
        return "there is no program"
    if any(not name or "=" in name for name in command.env):
        return "a variable has no name, or one with an equals sign"
    words = (*command.argv, *command.env, *command.env.values(), command.cwd, command.hostname)
    for word in words:
        if "\0" in word:
            return "a NUL byte in an argument or a variable"
        try:
            os.fsencode(word)
        except UnicodeEncodeError:
            return "an argument or a variable is no text"
    return ""
