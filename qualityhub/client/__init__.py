"""Python client of a hub's REST interface."""

from __future__ import annotations

from qualityhub.client.api import QualityHubClient
from qualityhub.client.model import Ingested, Job, Manifest

__all__ = ["Ingested", "Job", "Manifest", "QualityHubClient"]
