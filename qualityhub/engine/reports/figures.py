"""Figures: the only place that draws. Each returns plain JSON for plotly in the browser."""

from __future__ import annotations

from collections import Counter
from html import escape
from typing import TYPE_CHECKING, Any, Literal

from qualityhub.engine.reports.safe import printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Theme = Literal["light", "dark"]

VERDICTS = ("block", "incomparable", "inconclusive", "promote")
# Symbol and colour both say the verdict: neither has to be seen for the other to be read.
_SYMBOLS = {
    "block": "x",
    "incomparable": "triangle-up-open",
    "inconclusive": "diamond-open",
    "promote": "circle",
}
_COLORS: dict[str, dict[str, str]] = {
    "light": {
        "block": "#c2410c",
        "incomparable": "#6d4aa8",
        "inconclusive": "#8a6500",
        "promote": "#00795c",
        "ink": "#1c2430",
        "soft": "#5b6472",
        "grid": "#e3e7ec",
        "margin": "#7a2e0b",
    },
    "dark": {
        "block": "#ff8a5c",
        "incomparable": "#c0abee",
        "inconclusive": "#f2c14e",
        "promote": "#45cfa3",
        "ink": "#e8ebf0",
        "soft": "#a3acb9",
        "grid": "#2c333d",
        "margin": "#ffb598",
    },
}
_FEW = 60
_SCREEN = 20
_NAME_LENGTH = 36


def gate_interval_figure(document: Mapping[str, Any], theme: Theme = "light") -> dict[str, Any]:
    """Return the change per domain with its interval, worst first, as plotly figure JSON.

    All values are percentage points. ``layout.meta.alt`` is a sentence for screen readers; the
    numbers belong into a table beside the figure (:func:`gate_table_rows`).

    Args:
        document: A gate document (``qualityhub.gate/1``).
        theme: Which background it will stand on.
    """
    # plotly takes half a second to import: only who draws pays for it.
    import plotly.graph_objects as go  # noqa: PLC0415

    colors = _COLORS[theme]
    domains = list(document["domains"])
    positions = range(len(domains))
    reach = round(105 * axis_reach(domains), 2)
    figure = go.Figure()
    for verdict in VERDICTS:
        chosen = [
            (y, item)
            for y, item in zip(positions, domains, strict=True)
            if item["verdict"] == verdict
        ]
        if chosen:
            figure.add_trace(go.Scatter(**_trace(verdict, chosen, colors[verdict])))
    if domains:
        figure.add_trace(go.Scatter(**_margins(domains, colors["margin"])))
    figure.update_layout(**_layout(document, domains, reach, colors))
    plain: dict[str, Any] = figure.to_plotly_json()
    return {"data": _plain(plain["data"]), "layout": _plain(plain["layout"])}


def gate_table_rows(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return one row per domain for the table under the figure; shares in percent, rest in points.

    Values are numbers or None, names are as given: whoever renders them escapes them.
    """
    return [
        {
            "domain": item["domain"],
            "verdict": item["verdict"],
            "tier": item.get("tier", ""),
            "group": item.get("group"),
            "tasks": item["n_tasks"],
            "rollouts_baseline": item["n_rollouts"]["baseline"],
            "rollouts_candidate": item["n_rollouts"]["candidate"],
            "baseline": _points(item["baseline_mean"]),
            "candidate": _points(item["candidate_mean"]),
            "delta": _points(item["delta"]),
            "lower": _points(item["lower"]),
            "upper": _points(item["upper"]),
            "margin": _points(item["margin"]),
            "p_adjusted": item.get("p_adjusted"),
            "needed": (item.get("needed") or {}).get("reason", ""),
            "reason": item.get("reason", ""),
        }
        for item in document["domains"]
    ]


def _trace(
    verdict: str, chosen: Sequence[tuple[int, Mapping[str, Any]]], color: str
) -> dict[str, Any]:
    known = [item["delta"] is not None for _, item in chosen]
    deltas = [_points(item["delta"]) or 0.0 for _, item in chosen]
    return {
        "name": f"{verdict} ({len(chosen)})",
        "x": deltas,
        "y": [y for y, _ in chosen],
        # A mark at zero without words would read as "no change".
        "mode": "markers" if all(known) else "markers+text",
        "text": ["" if there else "  no estimate" for there in known],
        "textposition": "middle right",
        "textfont": {"color": color, "size": 12},
        "marker": {
            "symbol": _SYMBOLS[verdict],
            "size": 10,
            "color": color,
            "line": {"width": 2, "color": color},
        },
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": [
                round((_points(item["upper"]) or 0.0) - delta, 4) if there else 0.0
                for delta, there, (_, item) in zip(deltas, known, chosen, strict=True)
            ],
            "arrayminus": [
                round(delta - (_points(item["lower"]) or 0.0), 4) if there else 0.0
                for delta, there, (_, item) in zip(deltas, known, chosen, strict=True)
            ],
            "color": color,
            "thickness": 2,
            "width": 4,
        },
        "hovertext": [_hover(item) for _, item in chosen],
        "hoverinfo": "text",
    }


def _margins(domains: Sequence[Mapping[str, Any]], color: str) -> dict[str, Any]:
    return {
        "name": "accepted drop",
        "x": [-(_points(item["margin"]) or 0.0) for item in domains],
        "y": list(range(len(domains))),
        "mode": "markers",
        "marker": {"symbol": "line-ns", "size": 14, "line": {"width": 2, "color": color}},
        "hoverinfo": "skip",
    }


def _layout(
    document: Mapping[str, Any],
    domains: Sequence[Mapping[str, Any]],
    reach: float,
    colors: Mapping[str, str],
) -> dict[str, Any]:
    count = len(domains)
    row = 30 if count <= _FEW else 18
    plot = row * max(count, 3)
    # Beyond one screen the axis stands at the top, where the worst domains are.
    tall = count > _SCREEN
    top = 135 if tall else 90
    return {
        "template": "none",
        "title": {
            "text": f"Change per domain with one-sided {_level(document)} % bounds, worst first",
            "font": {"size": 16, "color": colors["ink"]},
            "x": 0,
            "xref": "paper",
            "y": 1,
            "yref": "container",
            "yanchor": "top",
            "pad": {"t": 12},
        },
        "meta": {"alt": _alt(document)},
        "height": top + plot + 60,
        "margin": {"l": 20, "r": 20, "t": top, "b": 60},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, sans-serif", "color": colors["ink"], "size": 13},
        "hovermode": "closest",
        "legend": {
            "orientation": "h",
            "x": 0,
            "y": 1 + (top - 80) / plot,
            "yanchor": "bottom",
            "xref": "paper",
        },
        "xaxis": {
            "title": {
                "text": "candidate − baseline, percentage points",  # noqa: RUF001 - minus
                "font": {"size": 13},
                "standoff": 6,
            },
            "range": [-reach, reach],
            "zeroline": True,
            "zerolinewidth": 2,
            "zerolinecolor": colors["soft"],
            "gridcolor": colors["grid"],
            "side": "top" if tall else "bottom",
            "automargin": True,
        },
        "yaxis": {
            "tickmode": "array",
            "tickvals": list(range(count)),
            "ticktext": [_short(item["domain"]) for item in domains],
            "tickfont": {"size": 13 if count <= _FEW else 11},
            # Rows run from the top; half a row of air at both ends.
            "range": [count - 0.5, -0.5],
            "gridcolor": colors["grid"],
            "zeroline": False,
            "automargin": True,
        },
    }


def _level(document: Mapping[str, Any]) -> str:
    return f"{100 * (1 - document['policy'].get('alpha', 0.05)):.4g}"


def axis_reach(domains: Sequence[Mapping[str, Any]]) -> float:
    """Return half the width of the axis: every estimate, and all but far wider intervals."""
    values = [1.3 * abs(item["delta"]) for item in domains if item["delta"] is not None]
    bounds = sorted(
        max(abs(item["lower"]), abs(item["upper"])) for item in domains if item["lower"] is not None
    )
    if bounds:
        # A domain of a few tasks spans everything; it must not flatten the others.
        values.append(min(bounds[-1], 3 * bounds[len(bounds) // 2]))
    return float(max([*values, *(1.2 * item["margin"] for item in domains)], default=0.05))


def _hover(item: Mapping[str, Any]) -> str:
    lines = [f"<b>{escape(printable(item['domain'], 80))}</b>: {item['verdict']}"]
    if item["delta"] is not None:
        lines.append(
            f"{_points(item['delta']):+.2f} pt, from {_points(item['lower']):+.2f} "
            f"to {_points(item['upper']):+.2f}; accepted drop {_points(item['margin']):.2f}"
        )
        lines.append(f"{item['n_tasks']} tasks")
    else:
        lines.append(escape(printable(item.get("reason", ""), 120)))
    return "<br>".join(lines)


def _alt(document: Mapping[str, Any]) -> str:
    counts = Counter(item["verdict"] for item in document["domains"])
    said = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])
    total = len(document["domains"])
    worst = next((item for item in document["domains"] if item["delta"] is not None), None)
    text = f"Interval chart of {total} domains: {said or 'none'}."
    if worst is not None:
        name = printable(worst["domain"], 80)
        text += (
            f" First is {name} with a change of {_points(worst['delta'])} points, between "
            f"{_points(worst['lower'])} and {_points(worst['upper'])}."
        )
    return text


def _short(name: str) -> str:
    text = printable(name)
    text = text if len(text) <= _NAME_LENGTH else f"{text[: _NAME_LENGTH - 1]}…"
    return escape(text, quote=False)


def _points(fraction: float | None) -> float | None:
    return None if fraction is None else round(100 * fraction, 4)


def _plain(value: Any) -> Any:
    """Return lists and dictionaries in place of plotly's tuples and mappings."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
