"""Django's entry to this app."""

from __future__ import annotations

from django.apps import AppConfig


class RegistryConfig(AppConfig):
    """The registry app."""

    name = "qualityhub.registry"
    label = "registry"
