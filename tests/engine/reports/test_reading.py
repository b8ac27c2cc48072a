from __future__ import annotations

import pytest

from qualityhub.engine.reports.reading import (
    bounds,
    finding_counts,
    flake_bound,
    grouped,
    open_findings,
    percent,
    task_counts,
)


def test_three_hundred_clean_runs_bound_the_flake_rate_below_one_percent():
    assert flake_bound(300) < 0.01 < flake_bound(298)
    assert flake_bound(300) == pytest.approx(1 - 0.05 ** (1 / 300))
    assert flake_bound(0) == 1.0


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (0.00994, "1.00 %"),
        (0.009, "0.90 %"),
        (0.00613, "0.62 %"),
        (0.6316, "64 %"),
        (1.0, "100 %"),
        (0.025, "2.5 %"),
        (0.0000123, "0.0013 %"),
        (0, "0 %"),
    ],
)
def test_bounds_are_rounded_up_never_down(rate, text):
    assert percent(rate) == text


def test_a_passed_determinism_rule_claims_a_bound_over_all_tasks_and_for_one(document):
    (claim,) = bounds(document)
    assert (claim.code, claim.runs, claim.runs_per_task) == ("DET001", 2400, 300)
    assert claim.overall < claim.per_task < 0.01


def test_a_failed_or_untried_determinism_rule_claims_nothing(document):
    document["rules"][3]["status"] = "fail"
    assert bounds(document) == []
    document["rules"][3] |= {"status": "pass", "trials": 0}
    assert bounds(document) == []


def test_groups_come_by_severity_with_leads_last(document):
    assert [(group.code, group.kind, len(group.findings)) for group in grouped(document)] == [
        ("VER001", "finding", 7),
        ("VER003", "finding", 1),
        ("SIG001", "lead", 1),
    ]


def test_waived_known_and_lead_findings_cannot_fail(document):
    assert len(open_findings(document, frozenset())) == 7
    document["findings"][0]["waived"] = True
    document["findings"][1]["kind"] = "lead"
    assert len(open_findings(document, frozenset({"fp-VER001-t3"}))) == 4


def test_counts_name_each_finding_once(document):
    document["findings"][0]["waived"] = True
    counts = finding_counts(document, frozenset({"fp-VER001-t2"}))
    assert counts == {"errors": 5, "warnings": 1, "notes": 0, "leads": 1, "waived": 1, "known": 1}
    assert task_counts(document) == {"admitted": 1, "quarantined": 7}
