from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from importlib import import_module

import click
import pytest

from qualityhub import __version__
from qualityhub.cli import console
from qualityhub.cli.main import COMMANDS
from qualityhub.engine.errors import InvalidInputError, MachineryError, SandboxUnavailableError

HEAVY = ("pandas", "scipy", "statsmodels", "plotly", "django", "numpy")


def imported(importtime: str) -> set[str]:
    return {line.rpartition("|")[2].strip() for line in importtime.splitlines() if "|" in line}


def test_the_version_is_printed_without_anything_heavy():
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "qualityhub", "--version"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert __version__ in done.stdout
    modules = imported(done.stderr)
    assert "qualityhub.cli.main" in modules
    assert not [name for name in modules if name.split(".")[0] in HEAVY]


def test_inspect_speaks_before_anything_heavy_is_imported(tmp_path):
    """On a terminal the first line stands before the engine is loaded."""
    parent, child = pty.openpty()
    try:
        process = subprocess.Popen(
            [
                sys.executable,
                "-X",
                "importtime",
                "-m",
                "qualityhub",
                "inspect",
                str(tmp_path / "none"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=child,
            env={**os.environ, "QH_HOME": str(tmp_path / "home")},
        )
        os.close(child)
        said = b""
        try:
            while chunk := os.read(parent, 65536):
                said += chunk
        except OSError:
            pass  # The other end was closed: the process is done.
        assert process.wait(timeout=60) == 2
    finally:
        os.close(parent)
    before, found, _ = said.decode().partition("inspecting ")
    assert found
    assert "qualityhub.cli.options" in imported(before)
    assert not [name for name in imported(before) if name.split(".")[0] in HEAVY]


def test_help_lists_every_command_by_section_without_importing_it(call):
    result = call("--help")
    assert result.code == 0
    for name in COMMANDS:
        assert re.search(rf"^  {name}\s", result.out, re.MULTILINE)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_exists_with_help_that_starts_like_its_line(name):
    lazy = COMMANDS[name]
    pytest.importorskip("qualityhub.cli." + lazy.module)
    command = getattr(import_module(f"qualityhub.cli.{lazy.module}"), lazy.attribute)
    assert isinstance(command, click.Command)
    assert command.help


def test_an_unknown_command_gets_the_nearest_one(call):
    result = call("inspekt", "x")
    assert result.code == 2
    assert "Did you mean 'inspect'?" in result.err
    assert result.out == ""


def test_an_unknown_option_is_usage(call):
    result = call("inspect", "--polcy", "x", "y")
    assert result.code == 2
    assert "--policy" in result.err


def test_no_arguments_show_the_help(call):
    result = call()
    assert result.code == 2
    assert "Usage:" in result.out + result.err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidInputError("a.b", "It is \x1b[31mwrong.", "Do \u202eit."), 2),
        (SandboxUnavailableError("a.b", "No sandbox.", "Install one."), 4),
        (MachineryError("a.b", "Broken.", "Repair it."), 4),
    ],
)
def test_errors_are_a_sentence_and_a_hint_with_foreign_text_made_harmless(
    call, engine, error, code
):
    engine.answers["x"] = error
    result = call("inspect", "x")
    assert result.code == code
    assert result.out == ""
    assert result.err.startswith("error: ")
    assert "\nhint: " in result.err
    assert "Traceback" not in result.err
    assert "\x1b" not in result.err
    assert "\u202e" not in result.err


def test_our_own_failure_is_exit_4_with_a_traceback_only_on_request(call, engine):
    engine.answers["x"] = RuntimeError("boom")
    result = call("inspect", "x")
    assert result.code == 4
    assert "Traceback" not in result.err
    assert "--debug" in result.err
    assert "Traceback" in call("--debug", "inspect", "x").err


def test_an_interrupt_is_130(call, engine):
    engine.answers["x"] = KeyboardInterrupt()
    result = call("inspect", "x")
    assert result.code == 130
    assert result.out == ""


def test_the_worst_exit_code_wins_in_the_published_order():
    assert console.worst([0, 3, 1, 4, 2, 130]) == 130
    assert console.worst([0, 3, 1, 4, 2]) == 2
    assert console.worst([0, 3, 1, 4]) == 4
    assert console.worst([3, 1, 0]) == 1
    assert console.worst([0, 3]) == 3
    assert console.worst([]) == 0


def test_no_color_wins_over_force_color():
    assert console.use_color(sys.stdout, {"FORCE_COLOR": "1"})
    assert not console.use_color(sys.stdout, {"FORCE_COLOR": "1", "NO_COLOR": "1"})


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_name_the_program(call, shell):
    result = call("completion", shell)
    assert result.code == 0
    assert "_QUALITYHUB_COMPLETE" in result.out


def test_names_are_completed_without_importing_commands():
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "qualityhub"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={
            **os.environ,
            "_QUALITYHUB_COMPLETE": "bash_complete",
            "COMP_WORDS": "qualityhub re",
            "COMP_CWORD": "1",
        },
    )
    assert done.stdout.split() == ["plain,reproduce", "plain,results"]
    assert "qualityhub.cli.options" not in imported(done.stderr)


def test_a_reader_that_goes_away_is_no_traceback():
    done = subprocess.run(
        f"{sys.executable} -m qualityhub rules --format markdown | head -c 10",
        check=False,
        shell=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == ""
