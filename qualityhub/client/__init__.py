"""Python client of a hub's REST interface."""

from __future__ import annotations

from qualityhub.client.api import Ingested, Job, Manifest, QualityHubClient

__all__ = ["Ingested", "Job", "Manifest", "QualityHubClient"]
