"""Reads of this app; every list is limited to what the actor may see."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db.models import Count, Prefetch, Q, QuerySet

from qualityhub.accounts.models import User
from qualityhub.registry.models import Domain, Environment, EnvironmentVersion, Task

if TYPE_CHECKING:
    from qualityhub.accounts.access import Actor
    from qualityhub.accounts.models import Team


def domain_list(actor: Actor, *, team: Team | None = None, q: str = "") -> QuerySet[Domain]:
    """Return domains with ``environment_count``."""
    rows = Domain.objects.filter(team__in=[team.pk] if team else actor.team_ids)
    if q:
        rows = rows.filter(Q(slug__icontains=q) | Q(name__icontains=q))
    return rows.select_related("team").annotate(environment_count=Count("environments"))


def environment_list(
    actor: Actor, *, domain: str = "", name: str = "", q: str = ""
) -> QuerySet[Environment]:
    """Return environments with team, domain, owners and ``version_count``.

    Args:
        actor: Whose teams are looked at.
        domain: Slug or public id of a domain.
        name: Exact slug or name.
        q: Part of slug, name or description.
    """
    rows = Environment.objects.filter(team__in=actor.team_ids)
    if domain:
        rows = rows.filter(Q(domain__slug=domain) | Q(domain__public_id=domain))
    if name:
        rows = rows.filter(Q(slug=name) | Q(name=name))
    if q:
        rows = rows.filter(
            Q(slug__icontains=q) | Q(name__icontains=q) | Q(description__icontains=q)
        )
    return (
        rows.select_related("team", "domain")
        .prefetch_related(Prefetch("owners", User.objects.only("email")))
        .annotate(version_count=Count("versions"))
    )


def version_list(environment: Environment) -> QuerySet[EnvironmentVersion]:
    """Return the versions of an environment the caller was let see."""
    return EnvironmentVersion.objects.filter(environment=environment).select_related(
        "environment", "environment__domain"
    )


def version_latest(environment: Environment) -> EnvironmentVersion | None:
    """Return the newest version, or None."""
    return version_list(environment).order_by("-id").first()


def task_list(version: EnvironmentVersion) -> QuerySet[Task]:
    """Return the tasks of a version the caller was let see, in the owner's order."""
    return Task.objects.filter(version=version).order_by("position")
