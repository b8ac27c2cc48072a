"""Every verdict and status as a word, a shape and a tone; none of them is said by colour alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Tone = Literal["good", "bad", "warn", "idle"]

SHAPES = {
    "check": "M8 0a8 8 0 1 0 0 16A8 8 0 0 0 8 0Zm3.9 5.9-4.5 5.2a.9.9 0 0 1-1.3 0L3.8 8.7l1.3-1.3"
    " 1.6 1.6 3.8-4.4Z",
    "cross": "M4.7 0h6.6L16 4.7v6.6L11.3 16H4.7L0 11.3V4.7Zm-.1 5.7L6.9 8l-2.3 2.3 1.1 1.1L8 9.1l"
    "2.3 2.3 1.1-1.1L9.1 8l2.3-2.3-1.1-1.1L8 6.9 5.7 4.6Z",
    "half": "M8 0a8 8 0 1 0 0 16A8 8 0 0 0 8 0Zm0 2v12A6 6 0 0 1 8 2Z",
    "bars": "M1 0h14v16H1Zm3.5 4v8h2.6V4Zm4.4 0v8h2.6V4Z",
    "clock": "M8 0a8 8 0 1 0 0 16A8 8 0 0 0 8 0Zm0 2a6 6 0 1 1 0 12A6 6 0 0 1 8 2Zm-.9 2v4.6l3.1 2"
    " 1-1.5-2.3-1.5V4Z",
    "dots": "M2.2 5.8a2.2 2.2 0 1 0 0 4.4 2.2 2.2 0 0 0 0-4.4Zm5.8 0a2.2 2.2 0 1 0 0 4.4 2.2 2.2"
    " 0 0 0 0-4.4Zm5.8 0a2.2 2.2 0 1 0 0 4.4 2.2 2.2 0 0 0 0-4.4Z",
    "diamond": "M8 0l8 8-8 8-8-8Zm0 3L3 8l5 5 5-5Z",
    "hill": "M8 1l8 14H0Zm0 4.1L3.4 13h9.2Z",
    "warning": "M8 1l8 14H0Zm-.9 4.8v4.4h1.8V5.8Zm0 5.6v1.8h1.8v-1.8Z",
    "dash": "M8 0a8 8 0 1 0 0 16A8 8 0 0 0 8 0ZM4 7v2h8V7Z",
    "info": "M8 0a8 8 0 1 0 0 16A8 8 0 0 0 8 0ZM7 3h2v2H7Zm0 3.4h2V13H7Z",
    "bolt": "M9.5 0 2 9h4.6l-1.2 7L14 6.4H8.6Z",
    "lens": "M6.5 0a6.5 6.5 0 1 0 3.9 11.7l4.2 4.2 1.4-1.4-4.2-4.2A6.5 6.5 0 0 0 6.5 0Zm0 2a4.5 4.5"
    " 0 1 1 0 9 4.5 4.5 0 0 1 0-9Z",
}
"""Outlines in a box of 16 by 16, holes by the even-odd rule."""


@dataclass(frozen=True, slots=True)
class State:
    """How a value is shown.

    Attributes:
        word: What is read.
        shape: Name in :data:`SHAPES`.
        tone: Class of colour.
    """

    word: str
    shape: str
    tone: Tone


UNKNOWN = State("unknown", "dash", "idle")

STATES: dict[str, State] = {
    # Verdicts on environments and tasks.
    "admitted": State("admitted", "check", "good"),
    "partial": State("partly admitted", "half", "warn"),
    "rejected": State("rejected", "cross", "bad"),
    "quarantined": State("quarantined", "bars", "bad"),
    "pending": State("pending", "clock", "idle"),
    "error": State("hub error", "bolt", "warn"),
    "not_judged": State("not inspected yet", "dash", "idle"),
    "empty": State("no version yet", "dash", "idle"),
    # Verdicts on checkpoints; the shapes are those of the chart.
    "promote": State("promote", "check", "good"),
    "block": State("block", "cross", "bad"),
    "inconclusive": State("inconclusive", "diamond", "warn"),
    "incomparable": State("incomparable", "hill", "idle"),
    # Rules.
    "pass": State("pass", "check", "good"),
    "fail": State("fail", "cross", "bad"),
    "skip": State("skipped", "dash", "idle"),
    # Work.
    "queued": State("queued", "clock", "idle"),
    "waiting": State("waiting", "clock", "idle"),
    "preparing": State("preparing", "dots", "idle"),
    "running": State("running", "dots", "idle"),
    "finished": State("finished", "check", "good"),
    "decided": State("decided", "check", "good"),
    "errored": State("hub error", "bolt", "warn"),
    "failed": State("failed", "cross", "bad"),
    "cancelled": State("cancelled", "dash", "idle"),
    "open": State("open for rows", "dots", "idle"),
    "sealed": State("sealed", "check", "good"),
    # Workers.
    "live": State("live", "check", "good"),
    "stale": State("stale", "clock", "warn"),
    # Tokens.
    "active": State("active", "check", "good"),
    "expired": State("expired", "clock", "idle"),
    "revoked": State("revoked", "dash", "idle"),
}
SEVERITIES: dict[str, State] = {
    "error": State("error", "cross", "bad"),
    "warning": State("warning", "warning", "warn"),
    "info": State("note", "info", "idle"),
    "lead": State("lead", "lens", "idle"),
    "waived": State("waived", "dash", "idle"),
}


def state_of(value: str | None, kind: str = "") -> State:
    """Return how a value is shown.

    Args:
        value: A verdict, a status or, with ``kind="severity"``, a severity.
        kind: ``severity``, or empty.
    """
    table = SEVERITIES if kind == "severity" else STATES
    found = table.get(value or "not_judged")
    return found or State(str(value), UNKNOWN.shape, UNKNOWN.tone)
