"""Django's entry to this app."""

from __future__ import annotations

from django.apps import AppConfig


class DashboardConfig(AppConfig):
    """The dashboard app."""

    name = "qualityhub.dashboard"
    label = "dashboard"
