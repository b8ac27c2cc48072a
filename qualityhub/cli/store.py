"""``qualityhub store``: what the data folder keeps, and taking it away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from qualityhub.cli.console import deliver, people_size, people_time, say
from qualityhub.cli.options import DURATION, format_option, output_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qualityhub.engine.sandbox.reclaim import Pruned, Summary

STORE_SCHEMA = "qualityhub.store/1"


class Size(click.ParamType[int]):
    """``20G``, ``500MiB``: bytes."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return bytes."""
        from qualityhub.engine.errors import InvalidInputError
        from qualityhub.engine.sandbox.reclaim import size_from

        if isinstance(value, int):
            return value
        try:
            return size_from(str(value))
        except InvalidInputError:
            self.fail(f"{value!r} is no size. Write 20G, 500M or bytes.", param, ctx)


@click.group(
    invoke_without_command=True,
    short_help="Show what the data folder keeps, or make room in it.",
)
@format_option("text", "json")
@output_option
@click.pass_context
def store(ctx: click.Context, /, **given: Any) -> None:
    """Show what the data folder keeps: kinds, counts, sizes, last use.

    All of it can be made again: images, dependency layers, trial results.
    """
    if ctx.invoked_subcommand is not None:
        return
    from qualityhub.engine.home import default_home
    from qualityhub.engine.sandbox.reclaim import cap, summarize

    home = default_home()
    kinds = summarize(home)
    if given["format"] == "json":
        from qualityhub.engine.reports.json import dumps

        rows = [
            {
                "kind": item.kind,
                "count": item.count,
                "bytes": item.bytes,
                "in_use": item.in_use,
                "kept": item.kept,
                "oldest_use": int(item.oldest) or None,
                "last_use": int(item.newest) or None,
            }
            for item in kinds
        ]
        total = sum(item.bytes for item in kinds)
        document = {"schema": STORE_SCHEMA, "home": str(home), "bytes": total, "max_bytes": cap()}
        deliver(dumps({**document, "kinds": rows}), given["output"])
        return
    deliver(_overview(str(home), kinds, cap()), given["output"])


@store.command(short_help="Remove what was not used for long, or what does not fit.")
@click.option(
    "--max-size",
    type=Size(),
    help="Remove what was unused for longest until the rest fits; without it QH_STORE_MAX_BYTES.",
)
@click.option("--unused-for", type=DURATION, help="Remove what was not used for so long: 30d, 12h.")
@click.option("--dry-run", is_flag=True, help="Remove nothing, say what would be.")
@format_option("text", "json")
def prune(max_size: int | None, unused_for: float | None, *, dry_run: bool, **given: Any) -> None:
    """Remove things from the data folder, those unused for longest first.

    What a running inspection uses stays, and so do images that were imported under a name.
    """
    from qualityhub.engine.home import default_home
    from qualityhub.engine.sandbox import reclaim

    home = default_home()
    if max_size is None and unused_for is None:
        max_size = reclaim.cap()
        if max_size is None:
            raise click.UsageError(
                "Say what may go: --max-size 20G, --unused-for 30d, or set QH_STORE_MAX_BYTES."
            )
    done = reclaim.prune(home, max_bytes=max_size, unused_s=unused_for, dry_run=dry_run)
    if given["format"] == "json":
        from qualityhub.engine.reports.json import dumps

        document = {
            "schema": STORE_SCHEMA,
            "dry_run": dry_run,
            "removed": [{"kind": item.kind, "name": item.name} for item in done.removed],
            "in_use": [{"kind": item.kind, "name": item.name} for item in done.in_use],
            "bytes": done.bytes,
            "left_bytes": done.left_bytes,
            "swept": done.swept,
        }
        deliver(dumps(document), None)
        return
    deliver(_done(done, dry_run=dry_run), None)
    if max_size is not None and done.left_bytes > max_size:
        say(
            f"{people_size(done.left_bytes)} are left, more than asked for: the rest is in use, "
            "was used within minutes, or was imported under a name"
        )


def _overview(home: str, kinds: Sequence[Summary], most: int | None) -> str:
    lines = [f"{home}", "", f"{'kind':<16} {'count':>8} {'size':>9} {'in use':>7}  last use"]
    for item in kinds:
        when = people_time(item.newest) if item.count else ""
        kept = f"  ({item.kept} kept by name)" if item.kept else ""
        used = str(item.in_use or "")
        lines.append(
            f"{item.kind:<16} {item.count:>8,} {people_size(item.bytes):>9} {used:>7}  {when}{kept}"
        )
    total = sum(item.bytes for item in kinds)
    lines.append(f"{'total':<16} {'':>8} {people_size(total):>9}")
    limit = f"Kept below {people_size(most)}." if most else "No cap: set QH_STORE_MAX_BYTES."
    return "\n".join([*lines, "", limit, ""])


def _done(done: Pruned, *, dry_run: bool) -> str:
    verb = "would be removed" if dry_run else "removed"
    counts: dict[str, int] = {}
    for item in done.removed:
        counts[item.kind] = counts.get(item.kind, 0) + 1
    parts = ", ".join(f"{count:,} of {kind}" for kind, count in counts.items())
    lines = [f"{verb}: {parts or 'nothing'} ({people_size(done.bytes)})"]
    if done.in_use:
        lines.append(f"left, since in use: {len(done.in_use):,}")
    if done.swept:
        lines.append(f"left behind by processes that are gone, {verb}: {done.swept:,}")
    return "\n".join([*lines, ""])
