"""The command group: knows every command's name and first line, imports only what is asked for."""

from __future__ import annotations

import difflib
import os
import sys
import traceback
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

import click
from click.shell_completion import CompletionItem

from qualityhub import __version__
from qualityhub.cli.console import (
    INTERRUPTED,
    MACHINERY,
    USAGE,
    error_exit,
    say,
    say_error,
    use_color,
)
from qualityhub.engine.errors import QualityHubError

if TYPE_CHECKING:
    from collections.abc import Sequence


class Lazy(NamedTuple):
    """Where a command lives; its line in the help needs no import of it."""

    module: str
    attribute: str
    section: str
    help: str


_HERE, _HUB, _SERVE = "Judge files", "Talk to a hub", "Run a hub"
COMMANDS = {
    "inspect": Lazy(
        "inspect", "inspect", _HERE, "Inspect environments in sandboxes and say what is wrong."
    ),
    "gate": Lazy("gate", "gate", _HERE, "Compare a checkpoint with its baseline, per domain."),
    "rules": Lazy("rules", "rules", _HERE, "List the rules, or print one rule's page."),
    "reproduce": Lazy("reproduce", "reproduce", _HERE, "Run again just what produced a finding."),
    "image": Lazy("image", "image", _HERE, "Import images from archives; no engine needed."),
    "store": Lazy("store", "store", _HERE, "Show what the data folder keeps, or make room in it."),
    "trial": Lazy("trial", "trial", _HERE, "Show what a trial wrote, and how it ended."),
    "login": Lazy("remote", "login", _HUB, "Remember a hub's address and token."),
    "push": Lazy("remote", "push", _HUB, "Upload an environment and have it inspected."),
    "wait": Lazy("remote", "wait", _HUB, "Wait for a job or an inspection and show its end."),
    "admission": Lazy("admission", "admission", _HUB, "Ask what training may use."),
    "results": Lazy("results", "results", _HUB, "Upload evaluation results."),
    "up": Lazy("up", "up", _SERVE, "Start everything on this machine."),
    "status": Lazy("up", "status", _SERVE, "Say whether the hub on this machine runs."),
    "stop": Lazy("up", "stop", _SERVE, "Stop the hub on this machine."),
    "logs": Lazy("up", "logs", _SERVE, "Show what its parts wrote."),
    "doctor": Lazy("up", "doctor", _SERVE, "Check what this machine can do, and say what to fix."),
    "completion": Lazy(
        "completion", "completion", _HERE, "Print the completion script of a shell."
    ),
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the help."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command."""
        del ctx
        lazy = COMMANDS.get(cmd_name)
        if lazy is None:
            return None
        try:
            command = getattr(import_module(f"qualityhub.cli.{lazy.module}"), lazy.attribute)
        except ModuleNotFoundError as error:
            if error.name and error.name.split(".")[0] == "qualityhub":
                raise
            raise QualityHubError(
                "install.incomplete",
                f"'qualityhub {cmd_name}' needs the Python package {error.name!r}.",
                "Install it with: pip install 'qualityhub[server,standalone]'",
            ) from error
        if not isinstance(command, click.Command):
            raise TypeError(f"{lazy.module}.{lazy.attribute} is not a command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; an unknown name gets the nearest known one."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            near = difflib.get_close_matches(name, COMMANDS, n=1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            ctx.fail(f"No such command {name!r}.{hint}")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete names without importing any command."""
        found = [
            CompletionItem(name, help=lazy.help)
            for name, lazy in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by section without importing any."""
        del ctx
        for section in dict.fromkeys(lazy.section for lazy in COMMANDS.values()):
            rows = [(name, lazy.help) for name, lazy in COMMANDS.items() if lazy.section == section]
            with formatter.section(section):
                formatter.write_dl(rows)


@click.command(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Every option is also an environment variable: QH_, the command, the option. "
    "Exit codes are stable: see 'qualityhub inspect --help' and 'qualityhub gate --help'.",
)
@click.version_option(__version__, prog_name="qualityhub")
@click.option(
    "--debug", is_flag=True, envvar="QH_TRACEBACK", help="Show tracebacks of our own errors."
)
@click.pass_context
def cli(ctx: click.Context, debug: bool) -> None:
    """Judge reinforcement-learning environments and checkpoints.

    Inspects environments in sandboxes, says which tasks training may use, and compares
    checkpoints domain by domain. Works on files alone, or with a hub.
    """
    ctx.meta["qualityhub.debug"] = debug


def run(args: Sequence[str]) -> int:
    """Run the command line and return its exit code; nothing but the code comes back.

    Args:
        args: Arguments without the program's name.
    """
    debug = "--debug" in args or os.environ.get("QH_TRACEBACK", "").lower() in {
        "1",
        "true",
        "yes",
        "on",
    }
    try:
        result = cli.main(
            args=list(args),
            prog_name="qualityhub",
            standalone_mode=False,
            auto_envvar_prefix="QH",
            color=use_color(sys.stdout),
        )
        sys.stdout.flush()
    except (KeyboardInterrupt, click.Abort):
        say("interrupted")
        return INTERRUPTED
    except click.ClickException as error:
        error.show()
        return USAGE
    except QualityHubError as error:
        if debug:
            traceback.print_exc()
        say_error(error)
        return error_exit(error)
    except BrokenPipeError:
        # The reader went away (`| head`). Python would complain once more while it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the outermost frame: nobody else can say it.
        if debug:
            traceback.print_exc()
        say(f"error: our own code failed: {type(error).__name__}: {error}")
        say("hint: run it again with --debug and report what it prints.")
        return MACHINERY
    return result if isinstance(result, int) else 0
