"""People, teams, tokens and sign-in links."""

from __future__ import annotations

import re
from typing import Any, ClassVar

from django.contrib.auth.models import AbstractBaseUser, BaseUserManager, PermissionsMixin
from django.contrib.postgres.fields import ArrayField
from django.core.validators import RegexValidator
from django.db import models
from django.db.models.functions import Lower, Now

from qualityhub.accounts.choices import Role, Scope
from qualityhub.platform.ids import PublicIdModel

SLUG = re.compile(r"\A[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\Z")
slug_shape = RegexValidator(
    SLUG.pattern,
    "Use lower-case letters, digits and hyphens, at most 63, a letter or digit at both ends.",
)


class UserManager(BaseUserManager["User"]):
    """Makes users for Django's own commands; elsewhere ``services.user_create`` is used."""

    def create_user(self, email: str, password: str | None = None, **fields: Any) -> User:
        """Create a user; without a password only sign-in links work."""
        user = self.model(email=self.normalize_email(email).lower(), **fields)
        user.set_password(password)
        user.save(using=self._db)
        return user

    def create_superuser(self, email: str, password: str | None = None, **fields: Any) -> User:
        """Create an operator."""
        return self.create_user(email, password, is_staff=True, is_superuser=True, **fields)


class User(PublicIdModel, AbstractBaseUser, PermissionsMixin):
    """A person, known by e-mail address."""

    PREFIX: ClassVar[str] = "user"
    USERNAME_FIELD = "email"
    REQUIRED_FIELDS: ClassVar[list[str]] = []

    email = models.EmailField(max_length=254, unique=True)
    name = models.CharField(max_length=100, blank=True)
    is_active = models.BooleanField(default=True)
    is_staff = models.BooleanField(default=False)
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    objects: ClassVar[UserManager] = UserManager()

    class Meta:
        """One person per address, however it is written."""

        constraints = (models.UniqueConstraint(Lower("email"), name="user_email_any_case"),)

    def __str__(self) -> str:
        return str(self.email)


class Team(PublicIdModel):
    """Who shares environments, evidence and results."""

    PREFIX: ClassVar[str] = "team"

    slug = models.CharField(max_length=63, unique=True, validators=[slug_shape])
    name = models.CharField(max_length=100)
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    members = models.ManyToManyField(User, through="Membership", related_name="teams")

    def __str__(self) -> str:
        return str(self.name)


class Membership(models.Model):
    """A person's role in a team."""

    user = models.ForeignKey(User, models.CASCADE, related_name="memberships")
    team = models.ForeignKey(Team, models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=12, choices=Role.choices, default=Role.VIEWER.value)
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        """One role per person and team."""

        constraints = (
            models.UniqueConstraint(fields=["user", "team"], name="membership_user_team"),
            models.CheckConstraint(
                condition=models.Q(role__in=Role.values), name="membership_role"
            ),
        )

    def __str__(self) -> str:
        return f"{self.user} in {self.team}: {self.role}"


class ApiToken(PublicIdModel):
    """A key for programs. Only the secret's digest is kept."""

    PREFIX: ClassVar[str] = "tok"

    user = models.ForeignKey(User, models.CASCADE, related_name="tokens")
    team = models.ForeignKey(Team, models.CASCADE, related_name="tokens")
    name = models.CharField(max_length=100)
    key = models.CharField(max_length=16, unique=True)
    digest = models.CharField(max_length=64)
    scopes = ArrayField(models.CharField(max_length=40, choices=Scope.choices))
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    expires_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return str(self.name)


class SignInLink(models.Model):
    """A link that signs one person in once."""

    user = models.ForeignKey(User, models.CASCADE, related_name="sign_in_links")
    digest = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"link for {self.user}"
