"""Prints a one-time sign-in link for a person."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from qualityhub.accounts.models import User
from qualityhub.accounts.services import sign_in_link_create


class Command(BaseCommand):
    """``manage.py sign_in_link you@example.org``."""

    help = "Print a one-time sign-in link for a person."

    def add_arguments(self, parser: CommandParser) -> None:
        """Take the address."""
        parser.add_argument("email")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Print the link alone, so that it can be piped."""
        user = User.objects.filter(email=options["email"].strip().lower(), is_active=True).first()
        if user is None:
            raise CommandError(
                f"Nobody here is called {options['email']}. Make one: manage.py first_run --email …"
            )
        self.stdout.write(settings.QH_PUBLIC_URL + sign_in_link_create(user))
