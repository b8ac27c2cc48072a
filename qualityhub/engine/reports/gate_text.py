"""A gate's decision for people at a terminal: verdict, why, an interval bar per domain, next."""

from __future__ import annotations

import textwrap
from collections import Counter
from typing import TYPE_CHECKING, Any

from qualityhub.engine.reports.figures import axis_reach
from qualityhub.engine.reports.safe import printable
from qualityhub.engine.reports.text import Ink

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SHOWN_DOMAINS = 60
SHOWN_REASONS = 10
_STYLES = {"promote": "green", "block": "red", "inconclusive": "yellow", "incomparable": "blue"}
# Marks besides colour, for terminals and eyes without it.
_MARKS = {"promote": "+", "block": "x", "inconclusive": "?", "incomparable": "!"}
_MEANING = {
    "promote": "No domain got worse beyond what the policy accepts.",
    "block": "The candidate got worse, beyond chance and beyond the accepted drop.",
    "inconclusive": "The rollouts do not settle it: neither promote nor block is justified.",
    "incomparable": "The two sides did not measure the same thing: no verdict on quality.",
}
_NEXT = {
    "promote": "Next: promote; keep this record as the provenance of the new baseline.",
    "block": "Next: look at the worst tasks above, fix the regression, measure again.",
    "inconclusive": "Next: collect what is named above, then run the gate again.",
    "incomparable": "Next: run both checkpoints on the same task versions, then compare again.",
}
_NUMBERS_WIDTH = 49
_SMALLEST_BAR = 15
_LARGEST_BAR = 61


def gate_text(document: Mapping[str, Any], width: int = 100, color: bool = False) -> str:
    """Render a gate document (``qualityhub.gate/1``).

    Args:
        document: The decision's public JSON.
        width: Columns of the terminal.
        color: Whether to use ANSI colours.
    """
    ink = Ink(color)
    width = max(60, width)
    verdict = str(document["verdict"])
    head = ink(_STYLES[verdict], f"{_MARKS[verdict]} {verdict.upper()}")
    parts = [
        f"{ink('bold', 'Gate')}  {head}\n{textwrap.fill(_MEANING[verdict], width)}",
        _bullets(document.get("reasons", ()), width),
        _table(document, width, ink),
        _worst_tasks(document, width),
        _notes(document, width, ink),
        "\n".join(ink("bold", line) for line in textwrap.wrap(_NEXT[verdict], width)),
        "\n".join(ink("dim", line) for line in textwrap.wrap(_foot(document), width)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def interval_bar(
    lower: float, delta: float, upper: float, *, margin: float, reach: float, cells: int
) -> str:
    """Return an interval in ASCII: ``(--o--)``, ``|`` at zero, ``:`` at the accepted drop.

    Args:
        lower: Bound below.
        delta: Estimate.
        upper: Bound above.
        margin: Accepted drop, a positive number.
        reach: What the bar's ends stand for, in both directions.
        cells: Characters; odd, so that zero has one of its own.
    """
    bar = [" "] * cells

    def cell(value: float) -> int:
        return round((max(-reach, min(reach, value)) / reach + 1) / 2 * (cells - 1))

    for position in range(cell(lower), cell(upper) + 1):
        bar[position] = "-"
    bar[cell(0.0)] = "|"
    bar[cell(-margin)] = ":"
    bar[cell(lower)] = "<" if lower < -reach else "("
    bar[cell(upper)] = ">" if upper > reach else ")"
    bar[cell(delta)] = "o"
    return "".join(bar)


def _table(document: Mapping[str, Any], width: int, ink: Ink) -> str:
    domains: Sequence[Mapping[str, Any]] = document["domains"]
    shown = domains[:SHOWN_DOMAINS]
    if not shown:
        return ""
    longest = max(len(printable(item["domain"])) for item in shown)
    name_width = max(8, min(longest, width // 4))
    # Verdict, name, tasks, baseline, candidate, change and bounds come before the bar.
    cells = min(_LARGEST_BAR, width - name_width - _NUMBERS_WIDTH - 14)
    cells = cells if cells % 2 else cells - 1
    reach = _reach(shown)
    with_bar = cells >= _SMALLEST_BAR
    head = f"  {'verdict':<13}{'domain':<{name_width}} {'tasks':>6} {'base':>6} {'cand':>6}"
    head += f" {'change':>7} {'between':>16}"
    if with_bar:
        side = f"-{reach * 100:.3g}"
        head += f"  {side}{'0':^{cells - 2 * len(side)}}{f'+{reach * 100:.3g}':>{len(side)}}"
    lines = [ink("dim", head.rstrip())]
    lines += [
        _row(item, name_width, ink) + (_bar(item, reach, cells) if with_bar else "")
        for item in shown
    ]
    lines = [line.rstrip() for line in lines]
    if len(domains) > len(shown):
        rest = Counter(str(item["verdict"]) for item in domains[SHOWN_DOMAINS:])
        said = ", ".join(f"{count} {verdict}" for verdict, count in sorted(rest.items()))
        lines.append(f"  … and {len(domains) - len(shown)} more domains: {said}")
    lines += _levels(document, name_width, ink)
    if with_bar:
        legend = "  percentage points   ( ) bounds   o change   | zero   : accepted drop"
        lines.append(ink("dim", legend))
    return "\n".join(lines)


def _row(item: Mapping[str, Any], name_width: int, ink: Ink) -> str:
    verdict = str(item["verdict"])
    mark = ink(_STYLES[verdict], f"{_MARKS[verdict]} {verdict:<12}")
    name = printable(item.get("domain", item.get("name")))
    if len(name) > name_width:
        name = f"{name[: name_width - 1]}…"
    between = "n/a"
    if item["lower"] is not None:
        between = f"{_points(item['lower'])} {_points(item['upper'])}"
    return (
        f"{mark} {name:<{name_width}} {item['n_tasks']:>6} {_percent(item['baseline_mean']):>6} "
        f"{_percent(item['candidate_mean']):>6} {_points(item['delta']):>7} {between:>16}"
    )


def _bar(item: Mapping[str, Any], reach: float, cells: int) -> str:
    if item["delta"] is None:
        return ""
    bar = interval_bar(
        item["lower"],
        item["delta"],
        item["upper"],
        margin=item["margin"],
        reach=reach,
        cells=cells,
    )
    return f"  {bar}"


def _levels(document: Mapping[str, Any], name_width: int, ink: Ink) -> list[str]:
    levels = [*document.get("groups", ())]
    if document.get("overall") and document["overall"]["n_domains"] > 1:
        levels.append(document["overall"])
    if not levels:
        return []
    return [ink("dim", "  means over domains"), *(_row(i, name_width, ink) for i in levels)]


def _reach(domains: Sequence[Mapping[str, Any]]) -> float:
    return max(axis_reach(domains), *(2 * float(item["margin"]) for item in domains))


def _worst_tasks(document: Mapping[str, Any], width: int) -> str:
    lines: list[str] = []
    for item in document["domains"]:
        worst = (item.get("flips") or {}).get("worst") or ()
        if item["verdict"] != "block" or not worst or len(lines) > 3 * SHOWN_REASONS:
            continue
        flips = item["flips"]
        lines += textwrap.wrap(
            f"{printable(item['domain'], 60)}: {flips['pass_to_fail']} tasks went from pass to "
            f"fail, {flips['fail_to_pass']} back; chance alone moves about "
            f"{flips['expected_pass_to_fail']:.0f} each way. Worst:",
            width,
        )
        for task in worst[:5]:
            change = f"{_percent(task['baseline'])} → {_percent(task['candidate'])} %"
            trace = f"  {printable(task['trace_ref'])}" if task.get("trace_ref") else ""
            lines.append(f"  {printable(task['task'], 60)}  {change}{trace}"[:width])
    return "\n".join(lines)


def _notes(document: Mapping[str, Any], width: int, ink: Ink) -> str:
    if not document.get("notes"):
        return ""
    return f"{ink('dim', 'Notes')}\n{_bullets(document['notes'], width)}"


def _bullets(sentences: Sequence[str], width: int) -> str:
    lines = [
        textwrap.fill(
            printable(sentence),
            width=width,
            initial_indent="  - ",
            subsequent_indent="    ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        for sentence in sentences[:SHOWN_REASONS]
    ]
    if len(sentences) > SHOWN_REASONS:
        lines.append(f"  - … and {len(sentences) - SHOWN_REASONS} more")
    return "\n".join(lines)


def _foot(document: Mapping[str, Any]) -> str:
    policy = document["policy"]
    inputs = document.get("inputs") or {}
    sizes = ", ".join(
        f"{side} {inputs[side]['rollouts']:,} rollouts"
        for side in ("candidate", "baseline")
        if side in inputs
    )
    return f"policy {printable(policy['name'], 40)} {policy['version'][:16]}   {sizes}".rstrip()


def _percent(share: float | None) -> str:
    return "n/a" if share is None else f"{100 * share:.1f}"


def _points(fraction: float | None) -> str:
    return "n/a" if fraction is None else f"{100 * fraction:+.2f}"
