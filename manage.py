"""Django's command line, with QualityHub's settings."""

from __future__ import annotations

import os
import sys


def main() -> int:
    """Run one Django command; a wrong setting is one clear message, not a traceback."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "qualityhub.settings")
    from django.core.management import execute_from_command_line

    from qualityhub.env import SettingsError

    try:
        execute_from_command_line(sys.argv)
    except SettingsError as error:
        sys.stderr.write(f"{error.message}\n{error.hint}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
