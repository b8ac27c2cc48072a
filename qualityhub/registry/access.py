"""The only ways to environments and versions: who cannot see them is told that there are none."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from qualityhub.accounts.access import check_role, not_found
from qualityhub.accounts.choices import Role, Scope
from qualityhub.accounts.models import SLUG
from qualityhub.platform.ids import is_public_id
from qualityhub.registry.choices import Admission
from qualityhub.registry.models import Domain, Environment, EnvironmentVersion

if TYPE_CHECKING:
    from django.db.models import QuerySet

    from qualityhub.accounts.access import Actor
    from qualityhub.accounts.models import Team

DIGEST = re.compile(r"qh1:[0-9a-f]{64}")
HANDED_OUT = (Admission.ADMITTED, Admission.PARTIAL)
"""Versions of which something passed: all that a token for asking what is admitted can download."""


def access_domain(
    actor: Actor, ref: str, need: Role = Role.VIEWER, *, team: Team | None = None
) -> Domain:
    """Return a domain by public id or slug; a slug is looked up in the team, or in all of theirs.

    Raises:
        NotFoundError: Unknown, not the actor's, or a slug that several of their teams use.
        ForbiddenError: Too small a role.
    """
    rows = Domain.objects.select_related("team").filter(
        team__in=actor.team_ids if team is None else [team.pk]
    )
    rows = rows.filter(public_id=ref) if is_public_id(ref, "dom") else rows.filter(slug=_slug(ref))
    found = list(rows[:2])
    if len(found) != 1:
        raise not_found("domain")
    check_role(actor, found[0].team_id, need, "domain")
    return found[0]


def access_environment(actor: Actor, ref: str, need: Role = Role.VIEWER) -> Environment:
    """Return an environment by public id.

    Raises:
        NotFoundError: Unknown, or not the actor's.
        ForbiddenError: Too small a role.
    """
    found = (
        Environment.objects.select_related("team", "domain")
        .filter(public_id=ref if is_public_id(ref, "env") else "", team__in=actor.team_ids)
        .first()
    )
    if found is None:
        raise not_found("environment")
    check_role(actor, found.team_id, need, "environment")
    return found


def access_version(actor: Actor, ref: str, need: Role = Role.VIEWER) -> EnvironmentVersion:
    """Return a version by public id or, where just one of the actor's has it, by digest.

    Raises:
        NotFoundError: Unknown, or not the actor's.
        ForbiddenError: Too small a role.
    """
    return _version(actor, ref, need, _versions(actor))


def access_files(actor: Actor, ref: str) -> EnvironmentVersion:
    """Return a version whose files the actor may have, by public id or digest.

    Who may not read environments is told of those alone of which something is admitted.

    Raises:
        NotFoundError: Unknown, not the actor's, or nothing of it is admitted.
    """
    rows = _versions(actor)
    if not actor.has_scope(Scope.ENVIRONMENTS_READ):
        rows = rows.filter(admission__in=HANDED_OUT)
    return _version(actor, ref, Role.VIEWER, rows)


def _versions(actor: Actor) -> QuerySet[EnvironmentVersion]:
    return EnvironmentVersion.objects.select_related(
        "environment", "environment__team", "environment__domain"
    ).filter(environment__team__in=actor.team_ids)


def _version(
    actor: Actor, ref: str, need: Role, rows: QuerySet[EnvironmentVersion]
) -> EnvironmentVersion:
    if DIGEST.fullmatch(ref):
        # The same content may be in several environments; the files are the same.
        found = rows.filter(digest=ref).order_by("id").first()
    else:
        found = rows.filter(public_id=ref if is_public_id(ref, "ver") else "").first()
    if found is None:
        raise not_found("version")
    check_role(actor, found.environment.team_id, need, "version")
    return found


def _slug(text: str) -> str:
    return text if SLUG.fullmatch(text) else ""
