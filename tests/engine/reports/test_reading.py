from __future__ import annotations

from qualityhub.engine.reports.reading import (
    claims,
    finding_counts,
    grouped,
    open_findings,
    task_counts,
)


def test_only_a_passed_determinism_rule_claims_anything(document):
    assert claims(document) == [("DET001", "0 of 300 runs per task differed")]
    document["rules"][3]["status"] = "fail"
    assert claims(document) == []


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
