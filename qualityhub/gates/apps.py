"""Django's entry to this app."""

from __future__ import annotations

from django.apps import AppConfig


class GatesConfig(AppConfig):
    """The gates app."""

    name = "qualityhub.gates"
    label = "gates"
