from __future__ import annotations

import pytest

from qualityhub.registry.models import Environment

pytestmark = pytest.mark.django_db


def test_environments_are_listed_with_version_and_verdict(member, version, inspected, text_of):
    inspected(version, provisional=True, provisional_reason="rehearsed")
    page = text_of(member.get("/domains/code/"))
    assert version.environment.public_id in page
    assert version.digest[:16] in page
    assert "partly admitted" in page
    assert "provisional" in page


def test_gates_of_the_domain_are_its_history(member, gate_of, text_of):
    gate_of({"code": (0.9, 0.5), "math": (0.7, 0.7)})
    page = text_of(member.get("/domains/code/"))
    assert "step-1" in page
    assert "−40.0" in page  # noqa: RUF001


def test_an_empty_domain_says_how_to_fill_it(member, domain, text_of):
    page = text_of(member.get("/domains/code/"))
    assert "qualityhub push path/to/environment --domain code" in page
    assert "No gate has measured this domain yet" in page


def test_more_environments_take_no_more_queries(
    *, member, team, domain, version, inspected, queries_of, make_version
):
    inspected(version)
    few = queries_of(member, "/domains/code/")
    for number in range(6):
        row = Environment.objects.create(team=team, domain=domain, slug=f"e{number}", name="E")
        inspected(make_version(environment=row))
    assert queries_of(member, "/domains/code/") == few <= 15


def test_names_are_shown_as_text(member, environment, text_of, hostile):
    Environment.objects.filter(pk=environment.pk).update(name=hostile)
    page = text_of(member.get("/domains/code/"))
    assert "<script>alert" not in page
    assert "\u202e" not in page
