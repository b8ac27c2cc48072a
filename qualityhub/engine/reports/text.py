"""The inspection report for people at a terminal."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from qualityhub.engine.reports.reading import (
    claims,
    evidence_lines,
    finding_counts,
    grouped,
    outputs,
    rate,
    summary,
    task_counts,
    trials_of,
)
from qualityhub.engine.reports.safe import printable, printable_lines

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qualityhub.engine.reports.reading import Document, Group

NO_ONE: frozenset[str] = frozenset()
SHOWN_TASKS = 5
SHOWN_LINES = 6
SHOWN_OUTPUTS = 2
_STYLES = {
    "bold": "1",
    "dim": "2",
    "red": "1;31",
    "green": "1;32",
    "yellow": "1;33",
    "blue": "1;34",
}
_VERDICTS = {
    "admitted": "green",
    "partial": "yellow",
    "rejected": "red",
    "pending": "blue",
    "error": "red",
}
_STATUSES = ("pass", "fail", "skip", "error")
_SEVERITIES = {"error": "red", "warning": "yellow", "info": "blue"}


class Ink:
    """Colours text where colour is wanted."""

    def __init__(self, color: bool) -> None:
        self._color = color

    def __call__(self, style: str, text: str) -> str:
        """Return the text in a named style."""
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if self._color else text


def inspection_text(
    document: Document, *, width: int = 100, color: bool = False, known: frozenset[str] = NO_ONE
) -> str:
    """Render one report.

    Args:
        document: The report's public JSON.
        width: Columns; foreign lines are cut to it.
        color: Whether to use ANSI colours.
        known: Fingerprints that a baseline already had: shown as known.
    """
    ink = Ink(color)
    width = max(40, width)
    parts = [_head(document, ink, known)]
    parts += [_group(group, ink, width, known) for group in grouped(document)]
    parts += [_not_measured(document, ink, width), _rules(document, ink, width)]
    parts += [_determinism(document, ink, width), _foot(document, ink)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _head(document: Document, ink: Ink, known: frozenset[str]) -> str:
    environment, policy = document["environment"], document["policy"]
    name = printable(environment["name"], 80)
    verdict = str(document["verdict"])
    word = ink(_VERDICTS.get(verdict, "bold"), verdict.upper())
    lines = [f"{word}  {ink('bold', name)}  ({printable(summary(document), 80)})"]
    if environment.get("digest"):
        lines.append(f"  digest   {printable(environment['digest'], 80)}")
    policy_name = printable(policy.get("name", ""), 60)
    version = printable(policy.get("version", ""))[:16]
    lines.append(f"  policy   {policy_name} {version} · effort {policy.get('effort', '')}".rstrip())
    tasks = ", ".join(f"{count:,} {verdict}" for verdict, count in task_counts(document).items())
    lines.append(f"  tasks    {tasks or 'none could be read'}")
    counts = finding_counts(document, known)
    words = [f"{count:,} {_singular(name, count)}" for name, count in counts.items() if count]
    lines.append(f"  findings {', '.join(words) or 'none'}")
    if environment.get("provisional"):
        reason = printable(environment.get("provisional_reason") or "not a full environment", 300)
        lines.append(f"  {ink('yellow', 'provisional')}: {reason}")
    return "\n".join(lines)


def _singular(name: str, count: int) -> str:
    return name[:-1] if count == 1 and name.endswith("s") else name


def _group(group: Group, ink: Ink, width: int, known: frozenset[str]) -> str:
    word = "lead" if group.kind == "lead" else group.severity
    head = ink(_SEVERITIES.get(group.severity, "bold"), f"{word} {group.code}")
    lines = [f"{head} {ink('bold', printable(group.title, 120))}".rstrip()]
    fresh = [item for item in group.findings if item["fingerprint"] not in known]
    shown = (fresh or list(group.findings))[0]
    message = printable(shown["message"], 600)
    if len({finding["message"] for finding in group.findings}) > 1:
        place = "the whole environment" if shown["task"] is None else printable(shown["task"], 60)
        message = f"{place}, for one: {message}"
    lines += _wrapped(f"  {message}", width, 2)
    if shown["task"] is not None or len(group.findings) > 1:
        lines.append(f"  {_field('tasks', _tasks(group, known), ink)}")
    if shown["location"]:
        lines.append(f"  {_field('where', printable(shown['location'], 200), ink)}")
    lines += _evidence(shown["evidence"], ink, width)
    if shown.get("fix"):
        lines += _wrapped(f"  {_field('fix', printable(shown['fix'], 400), ink)}", width, 11)
    if shown["reproduce"]:
        lines.append(f"  {_field('again', printable(shown['reproduce']), ink)}")
    for key in trials_of(shown["evidence"])[:1]:
        lines.append(f"  {_field('output', f'qualityhub trial {key}', ink)}")
    return "\n".join(lines)


def _field(name: str, value: str, ink: Ink) -> str:
    return f"{ink('dim', name.ljust(8))} {value}"


def _tasks(group: Group, known: frozenset[str]) -> str:
    names: dict[str, list[str]] = {}
    for finding in group.findings:
        task = "whole environment" if finding["task"] is None else printable(finding["task"], 60)
        marks = names.setdefault(task, [])
        if finding["waived"]:
            marks.append("waived")
        elif finding["fingerprint"] in known:
            marks.append("known")
    shown = [
        f"{name} ({', '.join(dict.fromkeys(marks))})" if marks else name
        for name, marks in list(names.items())[:SHOWN_TASKS]
    ]
    rest = len(names) - len(shown)
    return ", ".join(shown) + (f" and {rest:,} more" if rest else "")


def _evidence(evidence: Mapping[str, Any], ink: Ink, width: int) -> list[str]:
    lines = [
        f"  {_field(name, printable(text, width * 3), ink)}"
        for name, text in evidence_lines(evidence)
    ]
    for output in outputs(evidence)[:SHOWN_OUTPUTS]:
        rows = printable_lines(output, SHOWN_LINES, width - 6)
        lines += [f"  {ink('dim', '│')} {row}" for row in rows]
    return lines


def _not_measured(document: Document, ink: Ink, width: int) -> str:
    if not document["not_measured"]:
        return ""
    lines = [ink("bold", "not measured")]
    for item in document["not_measured"]:
        count = f"{item['tasks']:,} task" + ("" if item["tasks"] == 1 else "s")
        need = item.get("would_need", "")
        remedy = f" (would need: {printable(need, 200)})" if need else ""
        text = f"  {printable(item['code'])}  {count}: {printable(item['reason'], 600)}{remedy}"
        lines += _wrapped(text, width, 10)
    return "\n".join(lines)


def _rules(document: Document, ink: Ink, width: int) -> str:
    unmeasured = {item["code"] for item in document["not_measured"]}
    by_status: dict[tuple[str, str], list[str]] = {}
    ordered = sorted(document["rules"], key=lambda rule: _STATUSES.index(rule["status"]))
    for rule in ordered:
        said = rule["status"] in {"pass", "fail"} or rule["code"] in unmeasured
        reason = "" if said else printable(rule["reason"], 300)
        by_status.setdefault((rule["status"], reason), []).append(printable(rule["code"]))
    lines = [ink("bold", "rules")]
    for (status, reason), codes in by_status.items():
        why = f": {reason}" if reason else ""
        lines += _wrapped(f"  {status.ljust(8)} {' '.join(codes)}{why}", width, 11)
    return "\n".join(lines) if len(lines) > 1 else ""


def _determinism(document: Document, ink: Ink, width: int) -> str:
    lines = [ink("bold", "determinism")]
    for code, claim in claims(document):
        lines += _wrapped(f"  {printable(code)}  {printable(claim, 300)}", width, 10)
    return "\n".join(lines) if len(lines) > 1 else ""


def _wrapped(line: str, width: int, indent: int) -> list[str]:
    """Return a line as lines of the terminal's width, what follows indented."""
    own = len(line) - len(line.lstrip())
    return textwrap.wrap(
        line.lstrip(),
        width,
        initial_indent=" " * own,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _foot(document: Document, ink: Ink) -> str:
    trials, host = document["trials"], document.get("host") or {}
    run, cached = int(trials.get("run") or 0), int(trials.get("cached") or 0)
    words = [f"{run:,} trials run, {cached:,} from the store, {float(trials['seconds']):.1f} s"]
    if per_second := rate(document):
        words.append(f"{per_second:,.1f} trials/s")
    where = [str(host[key]) for key in ("provider", "python", "arch") if host.get(key)]
    if where:
        words.append(printable(", ".join(where), 120))
    if host.get("fork_server"):
        words.append(printable(f"fork server {host['fork_server']}", 120))
    return ink("dim", " · ".join(words))
