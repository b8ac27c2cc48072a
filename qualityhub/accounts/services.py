"""Writes of this app."""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import IntegrityError, transaction
from django.db.models import Q
from django.db.models.functions import Now
from django.urls import reverse
from django.utils import timezone
from django.utils.text import slugify

from qualityhub.accounts.choices import Role, Scope
from qualityhub.accounts.models import ApiToken, Membership, SignInLink, Team, User
from qualityhub.engine.errors import ConflictError, InvalidInputError, NotFoundError
from qualityhub.platform.audit import audit

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

SYSTEM = "system"
TOKEN = re.compile(r"qh_([a-z0-9]{12})_([A-Za-z0-9]{40})")
ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"
SECRET_ALPHABET = ALPHABET + ALPHABET[:26].upper()


@dataclass(frozen=True, slots=True)
class FirstRun:
    """What the first start made or found.

    Attributes:
        user: The first administrator.
        team: The first team.
        created: Whether this call made the team.
    """

    user: User
    team: Team
    created: bool


def team_create(
    *, name: str, slug: str = "", owner: User | None = None, actor: str = SYSTEM
) -> Team:
    """Create a team; the owner becomes its first administrator.

    Raises:
        InvalidInputError: No usable name or slug.
        ConflictError: The slug is taken.
    """
    name, slug = name.strip(), slug or slugify(name)[:63].strip("-")
    team = Team(name=name, slug=slug)
    _valid(team, exclude=["public_id"])
    try:
        with transaction.atomic():
            team.save()
            if owner is not None:
                Membership.objects.create(user=owner, team=team, role=Role.ADMIN)
            audit(
                actor=actor,
                action="team.created",
                team=team.public_id,
                object_id=team.public_id,
                object_text=name,
            )
    except IntegrityError as error:
        raise ConflictError("team.exists", f"A team {slug!r} exists already.") from error
    return team


def user_create(
    *, email: str, name: str = "", password: str | None = None, operator: bool = False
) -> User:
    """Create a person; without a password only sign-in links work.

    Raises:
        InvalidInputError: Not an e-mail address.
        ConflictError: The address is taken.
    """
    address = email.strip().lower()
    try:
        validate_email(address)
    except ValidationError as error:
        raise InvalidInputError("user.bad_email", f"{email!r} is no e-mail address.") from error
    try:
        with transaction.atomic():
            return User.objects.create_user(
                address, password, name=name[:100], is_staff=operator, is_superuser=operator
            )
    except IntegrityError as error:
        raise ConflictError("user.exists", f"{address} exists already.") from error


def membership_set(*, team: Team, user: User, role: Role, actor: str = SYSTEM) -> Membership:
    """Give a person a role in a team, or change it."""
    with transaction.atomic():
        membership, created = Membership.objects.select_for_update().get_or_create(
            team=team, user=user, defaults={"role": role}
        )
        before = None if created else {"role": membership.role}
        if not created and membership.role != role:
            membership.role = role
            membership.save(update_fields=["role"])
        audit(
            actor=actor,
            action="membership.set",
            team=team.public_id,
            object_id=user.public_id,
            object_text=user.email,
            before=before,
            after={"role": role},
        )
    return membership


def token_create(
    *,
    user: User,
    team: Team,
    name: str,
    scopes: Sequence[str],
    expires_at: datetime | None = None,
    actor: str = SYSTEM,
) -> tuple[ApiToken, str]:
    """Create a token and return it with its plain text, which is shown this once.

    Raises:
        InvalidInputError: No name, no or unknown scopes, or an expiry in the past.
        NotFoundError: The user is not in the team.
    """
    wanted = list(dict.fromkeys(scopes))
    unknown = [scope for scope in wanted if scope not in Scope.values]
    if unknown or not wanted:
        raise InvalidInputError(
            "token.unknown_scope",
            f"No scope is called {unknown[0]!r}." if unknown else "A token needs a scope.",
            f"Scopes are: {', '.join(Scope.values)}.",
        )
    if expires_at is not None and expires_at <= timezone.now():
        raise InvalidInputError("token.expired", "expires_at is in the past.")
    if not name.strip():
        raise InvalidInputError("token.no_name", "A token needs a name.")
    if not Membership.objects.filter(user=user, team=team).exists():
        raise NotFoundError("team.not_found", "There is no such team.")
    key = "".join(secrets.choice(ALPHABET) for _ in range(12))
    secret = "".join(secrets.choice(SECRET_ALPHABET) for _ in range(40))
    with transaction.atomic():
        token = ApiToken.objects.create(
            user=user,
            team=team,
            name=name.strip()[:100],
            key=key,
            digest=_digest(secret),
            scopes=wanted,
            expires_at=expires_at,
        )
        audit(
            actor=actor,
            action="token.created",
            team=team.public_id,
            object_id=token.public_id,
            object_text=token.name,
            after={"scopes": wanted, "expires_at": expires_at.isoformat() if expires_at else None},
        )
    return token, f"qh_{key}_{secret}"


def token_revoke(token: ApiToken, *, actor: str = SYSTEM) -> None:
    """Make a token useless; a second time changes nothing."""
    with transaction.atomic():
        if ApiToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=Now()):
            audit(
                actor=actor,
                action="token.revoked",
                team=token.team.public_id,
                object_id=token.public_id,
                object_text=token.name,
            )


def token_authenticate(plain: str) -> ApiToken | None:
    """Return the living token of a plain text, or None; notes its use once a minute at most."""
    match = TOKEN.fullmatch(plain)
    if match is None:
        return None
    token = (
        ApiToken.objects.select_related("user", "team")
        .filter(Q(expires_at=None) | Q(expires_at__gt=Now()), key=match[1], revoked_at=None)
        .first()
    )
    if token is None or not secrets.compare_digest(token.digest, _digest(match[2])):
        return None
    if not token.user.is_active:
        return None
    now = timezone.now()
    if token.last_used_at is None or now - token.last_used_at > timedelta(minutes=1):
        # Conditional: of many requests at once one writes.
        ApiToken.objects.filter(pk=token.pk, last_used_at=token.last_used_at).update(
            last_used_at=now
        )
    return token


def sign_in_link_create(user: User, *, minutes: int | None = None) -> str:
    """Return the path of a new one-time sign-in link."""
    secret = secrets.token_urlsafe(32)
    lifetime = timedelta(minutes=minutes or settings.QH_SIGN_IN_LINK_MINUTES)
    SignInLink.objects.create(
        user=user, digest=_digest(secret), expires_at=timezone.now() + lifetime
    )
    return reverse("accounts:sign-in-link", args=[secret])


def sign_in_link_find(secret: str) -> SignInLink | None:
    """Return a link that still works, without using it up."""
    return (
        SignInLink.objects.select_related("user")
        .filter(digest=_digest(secret), used_at=None, expires_at__gt=Now(), user__is_active=True)
        .first()
    )


def sign_in_link_use(secret: str) -> User | None:
    """Use a link up and return whom it signs in; None where it does not work (any more)."""
    link = sign_in_link_find(secret)
    # Conditional: of two clicks at once one wins.
    if link is None or not SignInLink.objects.filter(pk=link.pk, used_at=None).update(
        used_at=Now()
    ):
        return None
    audit(
        actor=link.user.email,
        action="user.signed_in",
        object_id=link.user.public_id,
        object_text=link.user.email,
    )
    return link.user


def sign_in_links_purge() -> int:
    """Forget links that have expired; returns how many."""
    return SignInLink.objects.filter(expires_at__lt=Now()).delete()[0]


def first_run_ensure(email: str, team_name: str) -> FirstRun:
    """Make the first administrator and team where they are missing; safe to call at every start."""
    with transaction.atomic():
        user = User.objects.filter(email=email.strip().lower()).first()
        if user is None:
            user = user_create(email=email, operator=True)
        slug = slugify(team_name)[:63].strip("-")
        team = Team.objects.filter(slug=slug).first()
        if team is not None:
            Membership.objects.get_or_create(user=user, team=team, defaults={"role": Role.ADMIN})
            return FirstRun(user, team, created=False)
        return FirstRun(user, team_create(name=team_name, owner=user), created=True)


def _digest(secret: str) -> str:
    # Secrets are random with 200 bits and more: a plain hash is enough, nothing to guess.
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _valid(row: Team, *, exclude: list[str]) -> None:
    try:
        row.clean_fields(exclude=exclude)
    except ValidationError as error:
        field, messages = next(iter(error.message_dict.items()))
        raise InvalidInputError("team.invalid", f"{field}: {messages[0]}") from error
