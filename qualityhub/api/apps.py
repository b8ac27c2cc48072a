"""Django's entry to this app."""

from __future__ import annotations

from django.apps import AppConfig


class ApiConfig(AppConfig):
    """The api app."""

    name = "qualityhub.api"
    label = "qh_api"

    def ready(self) -> None:
        """Teach the schema generator our kind of token."""
        from qualityhub.api import schema  # noqa: F401, PLC0415 - registers on import.
