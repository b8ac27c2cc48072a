"""The one tree of errors. Each carries a stable code, a sentence and a way out.

What an environment does wrong is never an exception: it is a result, and a rule turns it into a
finding. Exceptions are for what the caller asked wrongly and for our own machinery.
"""

from __future__ import annotations


class QualityHubError(Exception):
    """Base of every error that a person may see.

    Args:
        code: Stable identifier, lower case with dots, e.g. ``"input.not_found"``.
        message: What is wrong, one sentence, naming the thing.
        hint: What to do about it; empty where the message says it all.
    """

    def __init__(self, code: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint


class InvalidInputError(QualityHubError):
    """The input cannot be used as it is: wrong type, unknown key, broken file."""


class UnreadablePackageError(InvalidInputError):
    """The files do not form one environment in one known format."""


class NotFoundError(QualityHubError):
    """The thing does not exist, or the caller may not know that it does."""


class ForbiddenError(QualityHubError):
    """The caller sees the thing but may not do this to it."""


class ConflictError(QualityHubError):
    """The state of the thing does not allow it now."""


class LimitExceededError(QualityHubError):
    """Larger, longer or more than this installation accepts."""


class SandboxUnavailableError(QualityHubError):
    """No provider on this host can run foreign code safely."""


class MachineryError(QualityHubError):
    """Our own parts failed; says nothing about the environment."""
