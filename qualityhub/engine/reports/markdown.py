"""Markdown for comments on a change. Leaves the hub, so it carries no answer keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qualityhub.engine.reports.reading import (
    claims,
    evidence_lines,
    finding_counts,
    grouped,
    rate,
    summary,
    task_counts,
)
from qualityhub.engine.reports.safe import markdown, markdown_code, public_evidence

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from qualityhub.engine.reports.reading import Document, Group

SHOWN_TASKS = 10
SHOWN_GROUPS = 40
_WORDS = {
    "admitted": "admitted",
    "partial": "partly admitted",
    "rejected": "rejected",
    "pending": "pending",
    "error": "our machinery failed",
}


def inspection_markdown(
    documents: Sequence[Document],
    *,
    known: Mapping[str, frozenset[str]] | None = None,
    unchanged: Sequence[str] = (),
) -> str:
    """Render reports for a comment.

    Args:
        documents: Reports in the order of their sources.
        known: Fingerprints that a baseline already had, by environment name.
        unchanged: Sources that were not inspected because nothing changed.
    """
    parts = [
        _document(document, (known or {}).get(document["environment"]["name"], frozenset()))
        for document in documents
    ]
    parts += [f"Unchanged, not inspected: {markdown_code(source)}" for source in unchanged]
    return "\n\n".join(parts) + "\n"


def _document(document: Document, known: frozenset[str]) -> str:
    environment = document["environment"]
    verdict = _WORDS.get(document["verdict"], markdown(document["verdict"]))
    lines = [f"### {markdown_code(environment['name'], 120)}: {verdict}", ""]
    tasks = ", ".join(f"{count:,} {word}" for word, count in task_counts(document).items())
    counts = finding_counts(document, known)
    found = ", ".join(f"{count:,} {word}" for word, count in counts.items() if count)
    lines.append(
        f"{markdown(summary(document), 200)} · tasks: {tasks or 'none could be read'}"
        f" · findings: {found or 'none'}"
    )
    if environment.get("provisional"):
        reason = environment.get("provisional_reason") or "not a full environment"
        lines += ["", f"**Provisional:** {markdown(reason, 400)}"]
    groups = grouped(document)
    if groups:
        lines += ["", "| severity | rule | tasks | what was seen |", "|---|---|---|---|"]
        lines += [_row(group, known) for group in groups[:SHOWN_GROUPS]]
        lines += ["", *(_details(group) for group in groups[:SHOWN_GROUPS])]
    if len(groups) > SHOWN_GROUPS:
        lines += ["", f"… and {len(groups) - SHOWN_GROUPS} more rules with findings."]
    lines += _rest(document)
    return "\n".join(lines)


def _row(group: Group, known: frozenset[str]) -> str:
    fresh = [item for item in group.findings if item["fingerprint"] not in known]
    word = "lead" if group.kind == "lead" else group.severity
    if not fresh:
        word = f"known {word}"
    elif all(item["waived"] for item in fresh):
        word = f"waived {word}"
    shown = (fresh or list(group.findings))[0]
    return (
        f"| {word} | **{markdown(group.code)}** {markdown(group.title, 120)}"
        f" | {_tasks(group)} | {markdown(shown['message'], 300)} |"
    )


def _tasks(group: Group) -> str:
    names = list(
        dict.fromkeys(
            "whole environment" if item["task"] is None else markdown_code(item["task"], 60)
            for item in group.findings
        )
    )
    rest = len(names) - SHOWN_TASKS
    return ", ".join(names[:SHOWN_TASKS]) + (f" and {rest:,} more" if rest > 0 else "")


def _details(group: Group) -> str:
    finding = group.findings[0]
    evidence: dict[str, Any] = public_evidence(finding["evidence"])
    lines = [
        f"<details><summary>{markdown(group.code)} evidence and how to see it again</summary>",
        "",
    ]
    lines += [f"- {name}: {markdown_code(text, 500)}" for name, text in evidence_lines(evidence)]
    if finding["location"]:
        lines.append(f"- where: {markdown_code(finding['location'], 200)}")
    if finding.get("fix"):
        lines.append(f"- fix: {markdown(finding['fix'], 400)}")
    if finding["reproduce"]:
        lines.append(f"- again: {markdown_code(finding['reproduce'])}")
    return "\n".join([*lines, "", "</details>"])


def _rest(document: Document) -> list[str]:
    lines: list[str] = []
    if document["not_measured"]:
        lines += ["", "**Not measured**", ""]
        lines += [
            f"- {markdown(item['code'])}: {item['tasks']:,} tasks, {markdown(item['reason'], 300)}"
            for item in document["not_measured"]
        ]
    if passed := claims(document):
        lines += ["", "**Determinism**", ""]
        lines += [f"- {markdown(code)}: {markdown(claim, 300)}" for code, claim in passed]
    trials = document["trials"]
    timing = (
        f"{int(trials.get('run') or 0):,} trials run, {int(trials.get('cached') or 0):,} from the"
        f" store, {float(trials.get('seconds') or 0):.1f} s, {rate(document):,.1f} trials/s."
    )
    return [*lines, "", timing]
