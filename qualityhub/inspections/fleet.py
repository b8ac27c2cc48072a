"""Rows about the workers: what they are, what batches need of them, and who gets how much."""

from __future__ import annotations

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models.functions import Now

from qualityhub.accounts.models import Team
from qualityhub.registry.models import Domain


class DomainTurn(models.Model):
    """How much a domain was served of late; the fair share between domains goes by it.

    ``used`` counts batches as of ``served_at`` and is halved every minute, see ``claims``.
    """

    domain = models.OneToOneField(Domain, models.CASCADE, primary_key=True, related_name="+")
    served_at = models.DateTimeField(db_default=Now())
    used = models.FloatField(default=0.0, db_default=0.0)

    def __str__(self) -> str:
        return f"{self.domain}: {self.served_at}"


class Share(models.Model):
    """An operator's word on what a domain or a team gets of the workers."""

    domain = models.OneToOneField(Domain, models.CASCADE, null=True, blank=True, related_name="+")
    team = models.OneToOneField(Team, models.CASCADE, null=True, blank=True, related_name="+")
    most_leased = models.PositiveIntegerField(
        null=True,
        blank=True,
        validators=[MinValueValidator(1)],
        help_text="Batches in work at once; empty: as many as there are workers.",
    )
    weight = models.FloatField(
        default=1.0,
        validators=[MinValueValidator(0.01), MaxValueValidator(100.0)],
        help_text="Of a domain: its part beside the others, which have 1.",
    )

    class Meta:
        """Each row is about a domain or about a team."""

        constraints = (
            models.CheckConstraint(
                condition=models.Q(domain__isnull=True) ^ models.Q(team__isnull=True),
                name="share_of_domain_or_team",
            ),
            models.CheckConstraint(condition=models.Q(weight__gt=0), name="share_weight_positive"),
            models.CheckConstraint(
                condition=models.Q(most_leased__isnull=True) | models.Q(most_leased__gt=0),
                name="share_most_positive",
            ),
        )

    def __str__(self) -> str:
        return f"share of {self.domain or self.team}"


class Need(models.Model):
    """What batches need of their workers, each different answer once. Rows never change."""

    digest = models.CharField(max_length=80, unique=True)
    document = models.JSONField()
    used_at = models.DateTimeField(db_default=Now(), help_text="When a batch was last planned.")

    def __str__(self) -> str:
        return str(self.document)


class Worker(models.Model):
    """A worker as it last said of itself; silent ones are kept for a day."""

    name = models.CharField(max_length=200, unique=True)
    session = models.CharField(max_length=64, help_text="One run of it; new after a restart.")
    offer = models.JSONField(help_text="What it can do.")
    processes = models.PositiveIntegerField(default=1)
    version = models.CharField(max_length=40)
    started_at = models.DateTimeField(db_default=Now())
    seen_at = models.DateTimeField(db_default=Now())
    trouble = models.CharField(
        max_length=500,
        blank=True,
        default="",
        db_default="",
        help_text="Why it claims nothing for a while: what failed there again and again.",
    )
    paused_until = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return str(self.name)
