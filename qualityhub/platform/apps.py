"""Django's entry to the platform room."""

from __future__ import annotations

from django.apps import AppConfig


class PlatformConfig(AppConfig):
    """Rows and helpers without product nouns; its label is not a standard library's name."""

    name = "qualityhub.platform"
    label = "qh_platform"

    def ready(self) -> None:
        """Register the system checks."""
        from qualityhub.platform import checks  # noqa: F401, PLC0415 - registers on import.
