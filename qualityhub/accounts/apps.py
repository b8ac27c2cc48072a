"""Django's entry to this app."""

from __future__ import annotations

from django.apps import AppConfig


class AccountsConfig(AppConfig):
    """The accounts app."""

    name = "qualityhub.accounts"
    label = "accounts"
