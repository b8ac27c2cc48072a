"""What every provider must hold, as named checks that run against any of them.

``qualityhub doctor --conformance`` runs them here, the tests run the same list.
"""

from __future__ import annotations

from qualityhub.engine.sandbox.conformance import (
    changes,
    contract,
    files,
    limits,
    network,
    privileges,
    reach,
)
from qualityhub.engine.sandbox.conformance.kit import CHECKS, Held, Kit, examine, kit_for

__all__ = [
    "CHECKS",
    "Held",
    "Kit",
    "changes",
    "contract",
    "examine",
    "files",
    "kit_for",
    "limits",
    "network",
    "privileges",
    "reach",
]
