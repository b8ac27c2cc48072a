"""Images of containers: built through an engine or imported from an archive, kept as trees."""

from __future__ import annotations

from qualityhub.engine.sandbox.images.inside import is_program, resolve_inside
from qualityhub.engine.sandbox.images.model import KIND, ImageFailed, ImageTree

__all__ = ["KIND", "ImageFailed", "ImageTree", "is_program", "resolve_inside"]
