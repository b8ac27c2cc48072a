"""Codes of what readers see and do not refuse; the format rules turn them into findings."""

from __future__ import annotations

UNKNOWN_KEY = "FMT002"
"""A key the format does not know: a typo would silently change nothing."""

MISSING_PART = "FMT001"
"""A part that the task needs is missing or empty: instruction, tests, reference, image."""

NAME_CLASH = "FMT003"
"""Names that are one on some file systems or to some readers: case, Unicode form."""

NOT_FOLLOWED = "FMT004"
"""A declaration that this hub does not follow: index options, paths, installs in place."""
