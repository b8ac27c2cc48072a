"""Shell completion."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a SHELL.

    For bash: qualityhub completion bash > ~/.local/share/bash-completion/completions/qualityhub
    """
    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"No completion for {shell}.")
    source = found(ctx.find_root().command, {}, "qualityhub", "_QUALITYHUB_COMPLETE")
    click.echo(source.source(), nl=False)
