"""Writes the reference page of all settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser


class Command(BaseCommand):
    """``manage.py settings_page --file docs/reference/settings.md``."""

    help = "Print the reference page of all settings, or write it to a file."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the file."""
        parser.add_argument("--file", type=Path)

    def handle(self, *_args: Any, **options: Any) -> None:
        """Print or write."""
        page: str = settings.ENV.page()
        if options["file"] is None:
            self.stdout.write(page, ending="")
        else:
            options["file"].write_text(page, encoding="utf-8")
