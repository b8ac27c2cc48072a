"""``qualityhub image``: images that need no container engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from qualityhub.cli.console import deliver, note
from qualityhub.cli.options import format_option, output_option
from qualityhub.engine.reports.safe import printable

IMAGES_SCHEMA = "qualityhub.images/1"


@click.group(short_help="Import images from archives; no container engine needed.")
def image() -> None:
    """Import images from archives, so that tasks start from them without a container engine.

    A task's docker_image, or a Dockerfile that is nothing but FROM NAME, then finds the imported
    image, also where an engine answers.
    """


@image.command("import", short_help="Import an OCI layout or what docker save wrote.")
@click.argument("archive", type=click.Path(exists=True, path_type=Path))
@click.option("--name", help="What tasks call it; without it what the archive says.")
@click.option("--image", "wanted", default="", help="Which one, where the archive holds several.")
@format_option("text", "json")
def import_image(archive: Path, name: str | None, wanted: str, **given: Any) -> None:
    """Import ARCHIVE: an OCI layout or what `docker save` wrote, as a folder or a tar.

    Every digest is verified. The same image is stored once, however it got here.
    """
    from qualityhub.engine.errors import InvalidInputError
    from qualityhub.engine.home import default_home
    from qualityhub.engine.sandbox.images.importing import import_archive
    from qualityhub.engine.sandbox.images.names import normal_name, remember_name
    from qualityhub.engine.sandbox.reclaim import after_growth

    if name is not None:
        normal_name(name)
    home = default_home()
    with after_growth(home):
        made = import_archive(archive, home, note, wanted=wanted)
        names = [name] if name is not None else list(made.names)
        if not names:
            raise InvalidInputError(
                "image.unnamed",
                "The archive does not say what its image is called.",
                "Give it a name: --name NAME.",
            )
        facts = _identity(home, made.tree.digest)
        known = [remember_name(home, item, made.tree.digest, facts) for item in names]
    row = {"names": known, "digest": made.tree.digest, "image": facts, "new": made.new}
    if given["format"] == "json":
        from qualityhub.engine.reports.json import dumps

        deliver(dumps({"schema": IMAGES_SCHEMA, "imported": row}), None)
        return
    what = "imported" if made.new else "already here"
    shown = ", ".join(printable(item, 200) for item in known)
    deliver(f"{shown}: {what} ({facts.removeprefix('sha256:')[:12]})\n", None)


@image.command("list", short_help="List imported images.")
@format_option("text", "json")
@output_option
def list_images(**given: Any) -> None:
    """List the names under which images were imported."""
    from qualityhub.cli.console import people_size, people_time
    from qualityhub.engine.home import default_home
    from qualityhub.engine.sandbox.images.names import named_images

    found = named_images(default_home())
    if given["format"] == "json":
        from qualityhub.engine.reports.json import dumps

        rows = [
            {
                "name": item.name,
                "digest": item.digest,
                "image": item.image,
                "imported": int(item.imported),
                "bytes": item.bytes,
                "here": item.tree is not None,
            }
            for item in found
        ]
        deliver(dumps({"schema": IMAGES_SCHEMA, "images": rows}), given["output"])
        return
    lines = [f"{'name':<40} {'image':<12} {'size':>9}  imported"] if found else []
    for item in found:
        size = people_size(item.bytes) if item.tree is not None else "gone"
        short = item.image.removeprefix("sha256:")[:12]
        when = people_time(item.imported)
        lines.append(f"{printable(item.name, 120):<40} {short:<12} {size:>9}  {when}")
    lines = lines or ["No image was imported yet: qualityhub image import ARCHIVE --name NAME"]
    deliver("\n".join([*lines, ""]), given["output"])


@image.command("remove", short_help="Take the name of an imported image away.")
@click.argument("name")
def remove_image(name: str) -> None:
    """Take NAME away. The files stay until `qualityhub store prune` needs their room."""
    from qualityhub.engine.home import default_home
    from qualityhub.engine.sandbox.images.names import forget_name

    deliver(f"{printable(forget_name(default_home(), name), 200)}: removed\n", None)


def _identity(home: Path, digest: str) -> str:
    from qualityhub.engine.sandbox import store

    facts = store.read_json(home / "images" / f"{store.short(digest)}.json") or {}
    return str(facts.get("image", ""))
