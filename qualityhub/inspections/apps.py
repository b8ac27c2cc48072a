"""Django's entry to this app."""

from __future__ import annotations

from django.apps import AppConfig


class InspectionsConfig(AppConfig):
    """The inspections app."""

    name = "qualityhub.inspections"
    label = "inspections"

    def ready(self) -> None:
        """Listen to what changes below."""
        from qualityhub.inspections.replanning import version_replan  # noqa: PLC0415 - needs models.
        from qualityhub.registry.placements import placement_changed  # noqa: PLC0415 - as above.

        placement_changed.connect(version_replan, dispatch_uid="inspections.replan")
