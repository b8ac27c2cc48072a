"""What every provider must hold, as named checks that run against any of them.

A check runs hostile commands and returns a sentence about what did not hold, or an empty string.
"""

from __future__ import annotations

from qualityhub.engine.sandbox.conformance import contract, files, limits, privileges, reach
from qualityhub.engine.sandbox.conformance.kit import CHECKS, Kit, run_checks

__all__ = ["CHECKS", "Kit", "contract", "files", "limits", "privileges", "reach", "run_checks"]
