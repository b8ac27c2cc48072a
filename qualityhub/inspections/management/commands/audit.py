"""``manage.py audit``: start the nightly audit now."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand, CommandError

from qualityhub.accounts.models import Team
from qualityhub.inspections.audits import audit_run
from qualityhub.inspections.subjects import facts_now

if TYPE_CHECKING:
    from django.core.management.base import CommandParser


class Command(BaseCommand):
    """Starts fresh inspections of what is admitted and stale."""

    help = "Start an audit now: fresh inspections of what is admitted and stale."

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the options."""
        parser.add_argument("--team", help="Slug of one team; otherwise all.")
        parser.add_argument(
            "--all", action="store_true", help="Whatever its age: everything that is admitted."
        )

    def handle(self, *args: Any, **options: Any) -> None:  # noqa: ARG002
        """Start it, and say what it began."""
        teams = Team.objects.order_by("slug")
        if options["team"]:
            teams = teams.filter(slug=options["team"])
            if not teams.exists():
                raise CommandError(f"There is no team {options['team']!r}.")
        for team in teams:
            run = audit_run(
                team=team,
                actor="manage.py audit",
                stale_after=timedelta(0) if options["all"] else None,
                facts=facts_now(),
            )
            self.stdout.write(
                f"{run.public_id} {team.slug}: {run.started} of {run.considered} admitted versions"
            )
