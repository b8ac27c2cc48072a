"""Django's entry to this app."""

from __future__ import annotations

from django.apps import AppConfig


class InspectionsConfig(AppConfig):
    """The inspections app."""

    name = "qualityhub.inspections"
    label = "inspections"
