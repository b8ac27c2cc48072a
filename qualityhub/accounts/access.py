"""Who is asking, and the only ways to shared objects."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from rest_framework.permissions import BasePermission

from qualityhub.accounts.choices import JOB_SCOPES, Role, Scope
from qualityhub.accounts.models import ApiToken, Membership, Team, User
from qualityhub.engine.errors import ForbiddenError, InvalidInputError, NotFoundError
from qualityhub.platform.ids import is_public_id
from qualityhub.platform.jobs import Job

if TYPE_CHECKING:
    from django.db.models import QuerySet
    from django.http import HttpRequest
    from rest_framework.request import Request


@dataclass(frozen=True)
class Actor:
    """A person, perhaps through one of their tokens.

    Attributes:
        user: The person.
        token: The token they use, or None in the browser.
    """

    user: User
    token: ApiToken | None = None

    def __str__(self) -> str:
        return f"{self.user.email} by token {self.token.name}" if self.token else self.user.email

    @property
    def key(self) -> str:
        """Public id of the token or the person, e.g. for idempotency keys."""
        return self.token.public_id if self.token else self.user.public_id

    @cached_property
    def roles(self) -> dict[int, Role]:
        """Role by team's primary key; a token reaches its own team alone."""
        rows = Membership.objects.filter(user=self.user)
        if self.token is not None:
            rows = rows.filter(team=self.token.team_id)
        return {row.team_id: Role(row.role) for row in rows}

    @property
    def team_ids(self) -> list[int]:
        """Primary keys of the teams whose things this actor sees."""
        return list(self.roles)

    def has_scope(self, scope: Scope | str) -> bool:
        """Tell whether the token covers this; a browser session covers all."""
        return self.token is None or scope in self.token.scopes or Scope.ADMIN in self.token.scopes

    def may(self, team_id: int, need: Role) -> bool:
        """Tell whether the role in that team is enough."""
        role = self.roles.get(team_id)
        return role is not None and role.includes(need)


def actor_of(request: Request | HttpRequest) -> Actor:
    """Return who is asking; the same object for the whole request."""
    base: Any = getattr(request, "_request", request)
    user, token = request.user, getattr(request, "auth", None)
    known = getattr(base, "qh_actor", None)
    if known is not None and known.user == user and known.token == token:
        return known  # type: ignore[no-any-return]
    if not isinstance(user, User):
        raise ForbiddenError("auth.missing", "Sign in first.")
    actor = Actor(user, token if isinstance(token, ApiToken) else None)
    base.qh_actor = actor
    return actor


def check_role(actor: Actor, team_id: int, need: Role, what: str) -> None:
    """Let pass whom the object's team lets do this.

    Raises:
        NotFoundError: Not in the team: the actor may not know that the object exists.
        ForbiddenError: In the team, with too small a role.
    """
    if team_id not in actor.roles:
        raise not_found(what)
    if not actor.may(team_id, need):
        raise ForbiddenError(
            "access.role", f"This needs the role {need} in the team.", "Ask a team administrator."
        )


def check_operator(actor: Actor) -> None:
    """Let pass who runs this hub: what belongs to the hub and to no team is theirs to see.

    Raises:
        ForbiddenError: Somebody else.
    """
    if not actor.user.is_staff:
        raise ForbiddenError(
            "access.operator",
            "This is for the operators of the hub.",
            "Ask one of them; an operator can make others so on the admin pages.",
        )


def not_found(what: str) -> NotFoundError:
    """Return the one answer for "does not exist" and "is not yours to see"."""
    return NotFoundError(f"{what}.not_found", f"There is no such {what}.")


def access_team(actor: Actor, ref: str | None, need: Role = Role.VIEWER) -> Team:
    """Return a team by slug or public id; without one, the actor's only team.

    Raises:
        InvalidInputError: No reference, and several teams to choose from.
        NotFoundError: Unknown, or not the actor's.
        ForbiddenError: Too small a role.
    """
    teams = Team.objects.filter(pk__in=actor.team_ids)
    if ref is None:
        found = list(teams[:2])
        if len(found) > 1:
            raise InvalidInputError(
                "team.ambiguous", "You are in several teams.", "Name one: team=SLUG."
            )
        team = found[0] if found else None
    elif "\0" in ref:
        team = None
    elif is_public_id(ref, "team"):
        team = teams.filter(public_id=ref).first()
    else:
        team = teams.filter(slug=ref).first()
    if team is None:
        raise not_found("team")
    check_role(actor, team.pk, need, "team")
    return team


def access_token(actor: Actor, ref: str) -> ApiToken:
    """Return one of the actor's own tokens, or any of a team they administer."""
    token = (
        ApiToken.objects.select_related("team", "user")
        .filter(public_id=ref if is_public_id(ref, "tok") else "", team__in=actor.team_ids)
        .first()
    )
    if token is None or not (
        token.user_id == actor.user.pk or actor.may(token.team_id, Role.ADMIN)
    ):
        raise not_found("token")
    return token


def jobs_seen(actor: Actor) -> QuerySet[Job]:
    """Return the jobs of the actor's teams, of the kinds that the token covers."""
    jobs = Job.objects.filter(team__in=actor.team_ids)
    if actor.has_scope(Scope.ADMIN):
        return jobs
    return jobs.filter(kind__in=[k for k, scope in JOB_SCOPES.items() if actor.has_scope(scope)])


def access_job(actor: Actor, ref: str) -> Job:
    """Return a job of one of the actor's teams by public id.

    Raises:
        NotFoundError: Unknown, not the actor's, or of a kind that the token does not cover.
    """
    job = jobs_seen(actor).filter(public_id=ref if is_public_id(ref, "job") else "").first()
    if job is None:
        raise not_found("job")
    return job


def require_scope(*scopes: Scope | str) -> type[BasePermission]:
    """Return a DRF permission that lets pass sessions, and tokens with one of the scopes."""
    wanted = [Scope(scope) for scope in scopes]

    class ScopePermission(BasePermission):
        """Holds the scopes."""

        required_scopes = wanted

        def has_permission(self, request: Request, view: Any) -> bool:  # noqa: ARG002
            if not isinstance(request.user, User):
                return False
            if not any(actor_of(request).has_scope(scope) for scope in wanted):
                raise ForbiddenError(
                    "access.scope",
                    f"The token lacks the scope {' or '.join(wanted)}.",
                    "Create a token that has it.",
                )
            return True

    return ScopePermission
