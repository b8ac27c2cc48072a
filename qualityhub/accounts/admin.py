"""Operators look at people and teams here."""

from __future__ import annotations

from django.contrib import admin

from qualityhub.accounts.models import ApiToken, Membership, Team, User
from qualityhub.platform.admin import LookOnlyAdmin


@admin.register(User)
class UserAdmin(LookOnlyAdmin):
    """People."""

    list_display = ("email", "name", "is_active", "is_staff", "last_login")
    search_fields = ("email", "name")
    exclude = ("password",)


@admin.register(Team)
class TeamAdmin(LookOnlyAdmin):
    """Teams."""

    list_display = ("slug", "name", "created_at")
    search_fields = ("slug", "name")


@admin.register(Membership)
class MembershipAdmin(LookOnlyAdmin):
    """Who is in which team."""

    list_display = ("user", "team", "role")
    list_filter = ("role",)
    list_select_related = ("user", "team")


@admin.register(ApiToken)
class ApiTokenAdmin(LookOnlyAdmin):
    """Tokens without what they are checked against."""

    list_display = ("name", "user", "team", "expires_at", "last_used_at", "revoked_at")
    list_select_related = ("user", "team")
    exclude = ("digest",)
