"""Where this installation keeps its data: trial store, layers, images, and the hub's own folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from qualityhub.engine.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Mapping

SYSTEM_HOME = Path("/var/lib/qualityhub")


def default_home(environ: Mapping[str, str] | None = None) -> Path:
    """Return the data folder; it need not exist yet.

    ``QH_HOME`` wins. Without it root uses ``/var/lib/qualityhub``, because root's own home folder
    is closed to the unprivileged user that trials and the embedded database run as; everybody else
    uses the platform's data folder.

    Args:
        environ: Instead of the process's own environment.

    Raises:
        InvalidInputError: ``QH_HOME`` is not an absolute path.
    """
    stated = (os.environ if environ is None else environ).get("QH_HOME", "")
    if stated:
        home = Path(stated).expanduser()
        if not home.is_absolute():
            raise InvalidInputError(
                "settings.home_relative",
                f"QH_HOME must be an absolute path, not {stated!r}.",
                f"Try QH_HOME={home.absolute()}.",
            )
        return home
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        return SYSTEM_HOME
    # Imported here: the system path needs none of it.
    from platformdirs import user_data_path  # noqa: PLC0415

    return user_data_path("qualityhub", appauthor=False)
