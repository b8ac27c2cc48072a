"""``python -m qualityhub.standalone.demo TEAM``: load the demo into a running hub.

Prints one line per event and, last, ``gate GATE_ID``, which the supervisor turns into a link.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from qualityhub.engine.errors import QualityHubError


def main() -> int:
    """Load the demo; return an exit status."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "qualityhub.settings")
    import django  # noqa: PLC0415 - settings come first

    django.setup()
    from django.conf import settings  # noqa: PLC0415

    from qualityhub.accounts.models import Team  # noqa: PLC0415
    from qualityhub.standalone.demo.loader import load_demo  # noqa: PLC0415

    team = Team.objects.filter(slug=sys.argv[1]).first() if len(sys.argv) > 1 else None
    team = team or Team.objects.order_by("pk").first()
    if team is None:
        print("error: the hub has no team yet", file=sys.stderr)  # noqa: T201
        return 4
    try:
        summary = load_demo(team, Path(settings.QH_HOME), _say)
    except QualityHubError as error:
        print(f"error: {error.message} {error.hint}", file=sys.stderr)  # noqa: T201
        return 4
    _say(f"gate {summary.gate}")
    return 0


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
