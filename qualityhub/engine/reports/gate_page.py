"""A gate's decision as one HTML file: figure and data, readable without any network."""

from __future__ import annotations

import json
from html import escape
from typing import TYPE_CHECKING, Any

from qualityhub.engine.reports.figures import gate_interval_figure
from qualityhub.engine.reports.gate_comment import change, needed, points, score
from qualityhub.engine.reports.safe import printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

COLUMNS = (
    "Domain",
    "Verdict",
    "Baseline",
    "Candidate",
    "Change, points",
    "Margin",
    "Tasks",
    "Rollouts",
    "Why",
)
_STYLE = """
:root { color-scheme: light dark; --line: #c9ced6; --soft: #5b6472; --paper: #fff; --ink: #14181f }
@media (prefers-color-scheme: dark) {
  :root { --line: #3a414c; --soft: #a3acb9; --paper: #12151a; --ink: #e8ebf0 }
}
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem;
  background: var(--paper); color: var(--ink) }
table { border-collapse: collapse; width: 100% }
caption { text-align: left; font-weight: 600; padding: .5rem 0 }
th, td { border-bottom: 1px solid var(--line); padding: .35rem .6rem; text-align: left;
  vertical-align: top }
td.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
.figure { background: #fff; border-radius: .4rem; margin: 1rem 0 }
.soft { color: var(--soft) }
"""
# Nothing but what is inside this file may load or be sent anywhere.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
)


_FIGURE = """
<div class="figure" id="figure" role="img"
 aria-label="Change per domain with its interval; the table below has the numbers"></div>
"""


def gate_page(document: Mapping[str, Any]) -> str:
    """Render a gate document (``qualityhub.gate/1``) as a self-contained page."""
    # plotly's script is 5 MB and slow to load: only for who asks for this page.
    from plotly.offline import get_plotlyjs  # noqa: PLC0415

    verdict = escape(str(document["verdict"]))
    overall = document.get("overall") or {}
    head = [
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>Gate: {verdict}</title>",
        f"<style>{_STYLE}</style>",
        f"<script>{get_plotlyjs()}</script>",
    ]
    body = [
        f"<h1>Gate: {verdict}</h1>",
        _list(document.get("reasons", ())),
        f"<p>Overall change: {_text(change(overall))} points</p>" if overall else "",
        _FIGURE,
        _table(document),
        f"<h2>Notes</h2>{_list(document['notes'])}" if document.get("notes") else "",
        f'<p class="soft">{_text(_policy_line(document))}</p>',
        f"<script>const figure = {script_json(_plain(gate_interval_figure(document, 'light')))};",
        "Plotly.newPlot('figure', figure.data, figure.layout,",
        "{responsive: true, displaylogo: false});</script>",
    ]
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            *head,
            "</head>",
            "<body>",
            *body,
            "</body>",
            "</html>",
            "",
        ]
    )


def script_json(value: object) -> str:
    """Return JSON that no content can end the script element with."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _plain(figure: Any) -> Any:
    return json.loads(figure.to_json()) if hasattr(figure, "to_json") else figure


def _list(sentences: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{_text(item)}</li>' for item in sentences)}</ul>"


def _table(document: Mapping[str, Any]) -> str:
    head = "".join(f'<th scope="col">{name}</th>' for name in COLUMNS)
    rows = "".join(_row(domain) for domain in document["domains"])
    return (
        f"<table><caption>Every domain</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{rows}</tbody></table>"
    )


def _row(domain: Mapping[str, Any]) -> str:
    rollouts = domain.get("n_rollouts") or {}
    why = ". ".join(part for part in (str(domain.get("reason") or ""), needed(domain)) if part)
    numbers = (
        score(domain.get("baseline_mean")),
        score(domain.get("candidate_mean")),
        change(domain),
        points(domain.get("margin")).lstrip("+"),
        f"{domain.get('n_tasks') or 0:,}",
        f"{rollouts.get('candidate', 0):,} / {rollouts.get('baseline', 0):,}",
    )
    cells = "".join(f'<td class="n">{_text(number)}</td>' for number in numbers)
    return (
        f'<tr><th scope="row">{_text(domain["domain"])}</th><td>{_text(domain["verdict"])}</td>'
        f"{cells}<td>{_text(why)}</td></tr>"
    )


def _policy_line(document: Mapping[str, Any]) -> str:
    policy = document.get("policy") or {}
    named = " ".join(str(policy[key]) for key in ("name", "version") if policy.get(key))
    return f"Policy {named}" if named else ""


def _text(value: object) -> str:
    return escape(printable(value))
