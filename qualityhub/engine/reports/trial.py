"""One trial as text for a terminal: how it ended, what it used, all that it wrote."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from qualityhub.engine.reports.safe import printable
from qualityhub.engine.trials.codec import ask_from_evidence
from qualityhub.engine.trials.variations import names_of

MIB = 1024 * 1024
STATES = {
    "preview": "Only the previews are left: the whole outputs were removed, or cannot be read.",
}


def trial_text(trial: Mapping[str, Any], evidence: Mapping[str, Any]) -> str:
    """Render a trial (``qualityhub.trial/1``) and its outputs (``qualityhub.evidence/1``)."""
    lines = [f"TRIAL  {printable(trial['trial'], 80)}"]
    seen = Counter((*seen_words(item), ask_words(item)) for item in trial["observations"])
    for (words, detail, ask), count in seen.items():
        times = f" ({count:,} times)" if count > 1 else ""
        asked = f" from {printable(', '.join(filter(None, ask)), 600)}" if ask else ""
        lines.append(f"  seen     {printable(words, 300)}{asked}{times}")
        lines += [f"           │ {printable(row.expandtabs(4))}" for row in detail.splitlines()]
    lines.append(f"  ended    {ended_words(trial['ended'])}")
    lines.append(f"  used     {used_words(trial['resources'])}")
    if trial["resources"]["dropped_bytes"]:
        dropped = int(trial["resources"]["dropped_bytes"])
        lines.append(f"  output   {dropped:,} bytes beyond the limit were dropped as it ran")
    if evidence["state"] in STATES:
        lines.append(f"  note     {STATES[evidence['state']]}")
    if not evidence["parts"]:
        lines.append("  wrote    nothing")
    for part in evidence["parts"]:
        lines += ["", part_head(part)]
        lines += _block(part["head"])
        if part["left_out"]:
            lines.append(f"  … {int(part['left_out']):,} bytes left out …")
        lines += _block(part["tail"])
    return "\n".join(lines) + "\n"


def seen_words(observation: Mapping[str, Any]) -> tuple[str, str]:
    """Say what an ask showed, in words and with its foreign detail of many lines."""
    outcome = observation["outcome"]
    words = f"reward {observation['reward']}" if outcome == "reward" else outcome.replace("_", " ")
    return words, str(observation["detail"])


def ask_words(observation: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """Say what an observation answers: its task, its probe, and what was changed around it.

    None where it does not say: no inspection is known that asked.
    """
    try:
        ask = ask_from_evidence(observation.get("ask") or {})
    except (KeyError, TypeError, ValueError):
        return None
    changed = [names_of(ask.variation)] if ask.variation.changes() else []
    changed += [f"repeat {ask.repeat}"] if ask.repeat else []
    changed += ["in a world of its own"] if ask.cold else []
    return ask.task, ask.probe, ", ".join(changed)


def ended_words(ended: Mapping[str, Any]) -> str:
    """Say how a program ended."""
    words = []
    if ended["timed_out"]:
        words.append("its time ran out")
    if ended["out_of_memory"]:
        words.append("the memory limit ended it")
    if ended["signal"] is not None:
        words.append(f"signal {int(ended['signal'])}")
    if ended["exit_code"] is not None:
        words.append(f"exit status {int(ended['exit_code'])}")
    return ", ".join(words) or "in a way that was not recorded"


def used_words(used: Mapping[str, Any]) -> str:
    """Say what a program used."""
    words = [f"{float(used['seconds']):.3f} s", f"{float(used['cpu_seconds']):.3f} s of CPU"]
    if used["peak_memory_bytes"]:
        words.append(f"{int(used['peak_memory_bytes']) / MIB:.1f} MiB of memory at most")
    return ", ".join(words)


def part_head(part: Mapping[str, Any]) -> str:
    """Return the title of an output: what it is and how long."""
    name = printable(part["name"], 200)
    what = f"{part['what']} ({name})" if part["what"] else name
    return f"{what}, {int(part['bytes']):,} bytes"


def _block(text: str) -> list[str]:
    return [f"  │ {printable(row.expandtabs(4))}" for row in text.splitlines()]
