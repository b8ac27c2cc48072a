"""A gate's decision as Markdown for a comment, and the numbers that every gate table shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qualityhub.engine.reports.safe import markdown, markdown_code

if TYPE_CHECKING:
    from collections.abc import Mapping

SHOWN_DOMAINS = 100
_WORDS = {
    "promote": "promote",
    "block": "block",
    "inconclusive": "inconclusive",
    "incomparable": "incomparable",
}


def gate_comment(document: Mapping[str, Any]) -> str:
    """Render a gate document (``qualityhub.gate/1``) for a comment.

    Domains that need attention come first; beyond a hundred the rest is counted.
    """
    lines = [f"### Gate: {_WORDS.get(document['verdict'], markdown(document['verdict']))}", ""]
    lines += [f"- {markdown(reason, 400)}" for reason in document.get("reasons", ())]
    if document.get("overall"):
        overall = document["overall"]
        lines.append(
            f"- Overall: {change(overall)} over {overall.get('n_tasks') or 0:,} tasks in"
            f" {overall.get('n_domains') or 0:,} domains ({markdown(overall['verdict'])})"
        )
    lines += [
        "",
        "| domain | verdict | baseline | candidate | change (interval) | margin | tasks | why |",
        "|---|---|---:|---:|---:|---:|---:|---|",
    ]
    domains = document["domains"]
    lines += [_row(domain) for domain in domains[:SHOWN_DOMAINS]]
    if len(domains) > SHOWN_DOMAINS:
        lines += ["", f"… and {len(domains) - SHOWN_DOMAINS:,} more domains."]
    if document.get("notes"):
        lines += ["", "**Notes**", ""]
        lines += [f"- {markdown(note, 400)}" for note in document["notes"]]
    policy = document.get("policy") or {}
    named = " ".join(str(policy[key]) for key in ("name", "version") if policy.get(key))
    if named:
        lines += ["", f"Policy {markdown_code(named, 120)}"]
    return "\n".join(lines) + "\n"


def score(value: float | None) -> str:
    """Return a mean as a percentage."""
    return "n/a" if value is None else f"{value * 100:.1f} %"


def points(value: float | None) -> str:
    """Return a difference in percentage points with its sign."""
    return "n/a" if value is None else f"{value * 100:+.1f}"


def change(level: Mapping[str, Any]) -> str:
    """Return a change with its interval in percentage points."""
    if level.get("delta") is None:
        return "n/a"
    interval = f"[{points(level.get('lower'))}, {points(level.get('upper'))}]"
    return f"{points(level['delta'])} {interval}"


def needed(level: Mapping[str, Any]) -> str:
    """Return what would settle an open verdict, or an empty string."""
    wanted = level.get("needed")
    if not wanted:
        return ""
    parts = [
        f"{wanted[key]:,} {words}"
        for key, words in (("rollouts_per_task", "rollouts per task"), ("tasks", "tasks"))
        if isinstance(wanted.get(key), int)
    ]
    if parts:
        return f"needs {' on '.join(parts)}"
    return str(wanted.get("reason") or "")


def _row(domain: Mapping[str, Any]) -> str:
    why = ". ".join(part for part in (str(domain.get("reason") or ""), needed(domain)) if part)
    cells = [
        markdown_code(domain["domain"], 80),
        markdown(domain["verdict"]),
        score(domain.get("baseline_mean")),
        score(domain.get("candidate_mean")),
        change(domain),
        points(domain.get("margin")).lstrip("+"),
        f"{domain.get('n_tasks') or 0:,}",
        markdown(why, 300),
    ]
    return "| " + " | ".join(cells) + " |"
