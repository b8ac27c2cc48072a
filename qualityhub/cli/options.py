"""Options shared by commands; each is also an environment variable that its help names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable

option = click.option
"""Every option is also a variable QH_COMMAND_OPTION, by the group's prefix."""

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


class Duration(click.ParamType[float]):
    """``90``, ``90s``, ``30m``, ``2h``, ``1h30m``: seconds."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return seconds."""
        if isinstance(value, (int, float)):
            return float(value)
        text = str(value).strip().lower()
        if re.fullmatch(r"\d+(\.\d+)?", text):
            seconds = float(text)
        elif re.fullmatch(r"(\d+(\.\d+)?[smhd])+", text):
            parts = re.findall(r"(\d+(?:\.\d+)?)([smhd])", text)
            seconds = sum(float(amount) * _UNITS[unit] for amount, unit in parts)
        else:
            self.fail(f"{value!r} is no duration. Write 90s, 30m, 2h or 1h30m.", param, ctx)
        if seconds <= 0:
            self.fail("a duration must be longer than nothing.", param, ctx)
        return seconds


class CodeList(click.ParamType[tuple[str, ...]]):
    """``DET001,VER002``: rule codes or family prefixes, upper-cased."""

    name = "codes"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Return the codes in order."""
        if isinstance(value, tuple):
            return value
        codes = tuple(part.upper() for part in re.split(r"[,\s]+", str(value)) if part)
        for code in codes:
            if not re.fullmatch(r"[A-Z]{3}\d*", code):
                self.fail(f"{code!r} is no rule code; codes look like DET001.", param, ctx)
        return codes


DURATION = Duration()
CODES = CodeList()
OUTPUT_FILE = click.Path(dir_okay=False, path_type=Path)
INPUT_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


def format_option(*formats: str) -> Callable[[Any], Any]:
    """Return the ``--format`` option for the given formats; the first is the default."""
    return click.option(
        "--format",
        type=click.Choice(formats),
        default=formats[0],
        show_default=True,
        help="What the document is written as.",
    )


output_option = click.option(
    "--output", type=OUTPUT_FILE, help="Write the document to a file instead of stdout."
)

url_option = click.option(
    "--url",
    envvar="QH_URL",
    show_envvar=True,
    help="The hub's address; without it the one that 'qualityhub login' stored.",
)
token_option = click.option(
    "--token",
    envvar="QH_TOKEN",
    show_envvar=True,
    help="Access token; prefer the variable, a command line is visible to other users.",
)
