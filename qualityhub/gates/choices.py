"""States and kinds of this room."""

from __future__ import annotations

from django.db import models


class RunStatus(models.TextChoices):
    """Whether rows may still arrive."""

    OPEN = "open", "open"
    SEALED = "sealed", "sealed"


class GateStatus(models.TextChoices):
    """Where a gate stands; the verdict is another matter."""

    WAITING = "waiting", "waiting"
    DECIDED = "decided", "decided"
    FAILED = "failed", "failed"


class Verdict(models.TextChoices):
    """What a gate says about a candidate, over all or in one domain."""

    PROMOTE = "promote", "promote"
    BLOCK = "block", "block"
    INCONCLUSIVE = "inconclusive", "inconclusive"
    INCOMPARABLE = "incomparable", "incomparable"


class BaselineKind(models.TextChoices):
    """The two baselines every team keeps."""

    LAST_PROMOTED = "last_promoted", "last promoted"
    ANCHOR = "anchor", "anchor"


class Validity(models.IntegerChoices):
    """Validity of one rollout, stored small; the words are the engine's."""

    VALID = 0, "valid"
    MODEL_FAILURE = 1, "model-failure"
    INVALID_INFRA = 2, "invalid-infra"
    INVALID_GRADER = 3, "invalid-grader"
