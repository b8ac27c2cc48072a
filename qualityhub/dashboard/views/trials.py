"""One trial: how it ended, what it used, what it wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.shortcuts import render
from django.views.decorators.http import require_safe

from qualityhub.dashboard.frame import member_page
from qualityhub.engine.reports.trial import (
    STATES,
    ask_words,
    ended_words,
    part_head,
    seen_words,
    used_words,
)
from qualityhub.inspections.access import access_trial
from qualityhub.inspections.evidence import evidence_shown, trial_inspections, trial_shown

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse

    from qualityhub.accounts.access import Actor

SHOWN_CHARACTERS = 200_000
"""Of each end of an output on the page; the REST interface has all that was kept."""

SHOWN_OBSERVATIONS = 200


@require_safe
@member_page
def trial(request: HttpRequest, actor: Actor, key: str) -> HttpResponse:
    """Show one stored trial of the actor's team."""
    record = access_trial(actor, key)
    found, evidence = trial_shown(record), evidence_shown(record)
    return render(
        request,
        "dashboard/trial.html",
        {
            "trial": found,
            "seen": [_seen(item) for item in found["observations"][:SHOWN_OBSERVATIONS]],
            "unseen": max(0, len(found["observations"]) - SHOWN_OBSERVATIONS),
            "ended": ended_words(found["ended"]),
            "used": used_words(found["resources"]),
            "dropped": found["resources"]["dropped_bytes"],
            "note": STATES.get(evidence["state"], ""),
            "parts": [_part(part) for part in evidence["parts"]],
            "inspections": trial_inspections(record),
            "stored_at": record.created_at,
        },
    )


def _seen(observation: dict[str, Any]) -> dict[str, Any]:
    words, detail = seen_words(observation)
    ask = ask_words(observation)
    task, probe, around = ask or ("", "", "")
    return {
        "known": ask is not None,
        "task": task,
        "probe": probe,
        "around": around,
        "words": words,
        "detail": detail,
    }


def _part(part: dict[str, Any]) -> dict[str, Any]:
    return {
        "title": part_head(part),
        "head": part["head"][:SHOWN_CHARACTERS],
        "more": max(0, len(part["head"]) - SHOWN_CHARACTERS)
        + max(0, len(part["tail"]) - SHOWN_CHARACTERS),
        "left_out": part["left_out"],
        "tail": part["tail"][-SHOWN_CHARACTERS:],
    }
