"""Django's entry to this app."""

from __future__ import annotations

from django.apps import AppConfig


class ApiConfig(AppConfig):
    """The api app."""

    name = "qualityhub.api"
    label = "qh_api"
