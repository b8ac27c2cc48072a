"""Reads of this app."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qualityhub.accounts.access import jobs_seen
from qualityhub.accounts.choices import Role
from qualityhub.accounts.models import ApiToken, Membership

if TYPE_CHECKING:
    from django.db.models import QuerySet

    from qualityhub.accounts.access import Actor
    from qualityhub.platform.jobs import Job


def membership_list(actor: Actor) -> QuerySet[Membership]:
    """Return the actor's memberships with their teams."""
    return (
        Membership.objects.filter(user=actor.user, team__in=actor.team_ids)
        .select_related("team")
        .order_by("team__slug")
    )


def job_list(actor: Actor, **filters: str) -> QuerySet[Job]:
    """Return jobs of the actor's teams, of the kinds that the token covers.

    Args:
        actor: Whose teams are looked at.
        filters: ``status``, ``kind`` or ``object`` (the subject's public id), exactly.
    """
    wanted = {"object_id" if key == "object" else key: value for key, value in filters.items()}
    return jobs_seen(actor).filter(**wanted)


def token_list(actor: Actor) -> QuerySet[ApiToken]:
    """Return the actor's own tokens, and all tokens of teams they administer."""
    administered = [team for team, role in actor.roles.items() if role == Role.ADMIN]
    rows = ApiToken.objects.filter(team__in=actor.team_ids).select_related("team", "user")
    return rows.filter(user=actor.user) | rows.filter(team__in=administered)
