from __future__ import annotations

import json
import re

import numpy as np
import pytest

from qualityhub.engine.gate.decide import decide
from qualityhub.engine.gate.policy import GatePolicy
from qualityhub.engine.gate.rollups import TaskRollup
from qualityhub.engine.reports.figures import gate_interval_figure, gate_table_rows
from qualityhub.engine.reports.gate_text import gate_text, interval_bar

HOSTILE = "\x1b[31mred\u202e<script>alert(1)</script>"


def document(domains=5, tasks=100, names=None):
    rng = np.random.default_rng(1)
    sides = {}, {}
    for index in range(domains):
        p = rng.beta(0.6, 0.4, tasks)
        name = names[index] if names else f"domain-{index:03d}"
        for side, q in zip(sides, (p, p * (0.6 if index == 1 else 1)), strict=True):
            side[name] = [
                TaskRollup(
                    task=f"t{i}",
                    n=4,
                    passes=int(s),
                    sum=float(s),
                    sumsq=float(s),
                    trace_ref="trace-1" if s < 4 else "",
                )
                for i, s in enumerate(rng.binomial(4, q))
            ]
    sides[1].pop(names[0] if names else "domain-000")
    return decide(GatePolicy(), *sides).as_json()


def test_text_says_verdict_reason_every_domain_and_the_next_step():
    text = gate_text(document(), width=120)
    assert text.startswith("Gate  ! INCOMPARABLE\nThe two sides did not measure the same thing")
    assert "domain-000: the candidate has no rollouts of this domain" in text
    lines = [line for line in text.splitlines() if re.match(r"[x!?+] ", line)]
    assert [line.split()[2] for line in lines][:2] == ["domain-001", "domain-000"]
    assert re.search(r"[<(]-+o-+\)", lines[0])
    assert "trace-1" in text
    assert "Next: run both checkpoints on the same task versions" in text
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 120


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
def test_text_fits_its_width(width):
    longest = max(map(len, gate_text(document(), width=width).splitlines()))
    assert longest <= max(width, 76)


def test_text_of_many_domains_counts_the_rest():
    text = gate_text(document(domains=80, tasks=30))
    assert "… and 20 more domains: " in text


def test_text_colours_only_when_asked():
    assert "\x1b[" in gate_text(document(), color=True)


@pytest.mark.parametrize(
    ("values", "bar"),
    [
        ((-0.5, 0.0, 0.5), "     (-:--o----)     "),
        ((-2.0, -0.8, -0.7), "<-o)   :  |          "),
        ((0.2, 0.5, 3.0), "       :  | (--o---->"),
        ((-0.3, 0.0, 0.3), "       (--o--)       "),
    ],
)
def test_bar_shows_bounds_change_zero_and_margin(values, bar):
    lower, delta, upper = values
    assert interval_bar(lower, delta, upper, margin=0.3, reach=1.0, cells=21) == bar


def test_foreign_names_reach_neither_terminal_nor_browser_as_they_are():
    hostile = document(domains=3, names=["gone", HOSTILE, "c"])
    text = gate_text(hostile, width=160)
    assert "\x1b" not in text
    assert "\u202e" not in text
    figure = gate_interval_figure(hostile)
    assert "\\u202e" not in json.dumps(figure).replace("\\\\u202e", "")
    shown = [
        *figure["layout"]["yaxis"]["ticktext"],
        *(t for trace in figure["data"] for t in trace.get("hovertext", ())),
    ]
    assert any("&lt;script&gt;" in text for text in shown)
    assert not any("<script>" in text for text in shown)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("domains", [1, 5, 300])
def test_figure_has_one_row_per_domain_in_points(domains, theme):
    source = document(domains=domains, tasks=25)
    figure = gate_interval_figure(source, theme)
    json.dumps(figure, allow_nan=False)
    traces = [trace for trace in figure["data"] if trace["name"] != "accepted drop"]
    assert sorted(y for trace in traces for y in trace["y"]) == list(range(domains))
    symbols = [trace["marker"]["symbol"] for trace in traces]
    assert len(set(symbols)) == len(symbols)
    drop = next(trace for trace in figure["data"] if trace["name"] == "accepted drop")
    assert set(drop["x"]) == {-2.0}
    assert figure["layout"]["yaxis"]["ticktext"][0] == source["domains"][0]["domain"]
    assert figure["layout"]["height"] >= 18 * domains
    assert f"{domains} domain" in figure["layout"]["meta"]["alt"]


def test_figure_bars_end_at_the_bounds():
    source = document()
    figure = gate_interval_figure(source)
    by_row = {
        y: (x - minus, x, x + plus)
        for trace in figure["data"]
        if "error_x" in trace
        for x, y, minus, plus in zip(
            trace["x"],
            trace["y"],
            trace["error_x"]["arrayminus"],
            trace["error_x"]["array"],
            strict=True,
        )
    }
    for row, item in enumerate(source["domains"]):
        if item["delta"] is not None:
            assert by_row[row] == pytest.approx(
                [100 * item[key] for key in ("lower", "delta", "upper")], abs=2e-4
            )


def test_table_rows_carry_the_numbers_of_the_figure():
    rows = gate_table_rows(document())
    assert [row["domain"] for row in rows[:2]] == ["domain-001", "domain-000"]
    assert rows[0]["delta"] < -2
    assert rows[0]["rollouts_candidate"] == 400
    assert rows[1]["delta"] is None
    assert rows[1]["verdict"] == "incomparable"
