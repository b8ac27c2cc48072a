"""Django's entry to this app."""

from __future__ import annotations

from django.apps import AppConfig


class NotifyConfig(AppConfig):
    """The notify app."""

    name = "qualityhub.notify"
    label = "notify"
