"""Makes the first administrator and team, and prints a sign-in link."""

from __future__ import annotations

import json
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from qualityhub.accounts.services import first_run_ensure, sign_in_link_create
from qualityhub.engine.errors import QualityHubError


class Command(BaseCommand):
    """``manage.py first_run --email you@example.org --team "My lab"``."""

    help = "Make the first administrator and team where missing, and print a sign-in link."

    def add_arguments(self, parser: CommandParser) -> None:
        """Take address and team."""
        parser.add_argument("--email", default="admin@localhost.local")
        parser.add_argument("--team", default="Default")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Print one JSON document, for the supervisor and for people alike."""
        try:
            first = first_run_ensure(options["email"], options["team"])
        except QualityHubError as error:
            raise CommandError(f"{error.message} {error.hint}".strip()) from error
        document = {
            "user": first.user.email,
            "team": first.team.slug,
            "created": first.created,
            "sign_in_url": settings.QH_PUBLIC_URL + sign_in_link_create(first.user),
        }
        self.stdout.write(json.dumps(document))
