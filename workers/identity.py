"""Who this worker is and what it can do: found out once, before its pool is forked."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

from celery.signals import celeryd_after_setup

from qualityhub.inspections.needs import Offer
from qualityhub.inspections.offers import host_offer


@dataclass(frozen=True, slots=True)
class Identity:
    """One run of one worker.

    Attributes:
        name: As in the broker.
        offer: What it can do.
        processes: How many batches it does at once.
    """

    name: str
    offer: Offer
    processes: int


_identity: Identity | None = None


def identity() -> Identity | None:
    """Return who we are, or None outside of a worker."""
    return _identity


@celeryd_after_setup.connect
def begin(sender: Any = "", instance: Any = None, **_: Any) -> None:
    """Look at this host; every process of the pool inherits what was found."""
    global _identity  # noqa: PLW0603 - one worker per process.
    session = uuid.uuid4().hex
    processes = int(getattr(instance, "concurrency", None) or 1)
    _identity = Identity(str(sender)[:200], host_offer(session), processes)
