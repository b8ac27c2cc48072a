from __future__ import annotations

import pytest

from qualityhub.engine.rules.catalogue import CATALOGUE

pytestmark = pytest.mark.django_db


def test_every_rule_is_listed(member, team, text_of):
    page = text_of(member.get("/rules/"))
    assert [code for code in CATALOGUE if f"/rules/{code}/" not in page] == []


@pytest.mark.parametrize("code", sorted(CATALOGUE))
def test_every_rule_has_its_page(member, team, text_of, code):
    page = text_of(member.get(f"/rules/{code}/"))
    for heading in ("What it does", "Why it matters", "What it looks like", "Fix"):
        assert heading in page
    assert "`" not in page


def test_codes_are_found_in_any_case(member, team):
    assert member.get("/rules/ver001/").status_code == 200


def test_a_rule_says_where_it_strikes_today(member, make_version, make_finding, inspected, text_of):
    inspected(make_version(), findings=[make_finding(1, message="<b>bad</b>")])
    page = text_of(member.get("/rules/VER001/"))
    assert "Sums" in page
    assert "&lt;b&gt;bad" in page
    assert "No environment of your teams has this finding" in text_of(member.get("/rules/DET001/"))


def test_more_findings_take_no_more_queries(member, version, make_finding, inspected, queries_of):
    inspected(version)
    few = queries_of(member, "/rules/VER001/")
    inspected(version, findings=[make_finding(number) for number in range(15)])
    assert queries_of(member, "/rules/VER001/") == few <= 8
