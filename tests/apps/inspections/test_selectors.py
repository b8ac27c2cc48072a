from __future__ import annotations

import pytest

from qualityhub.inspections.selectors import (
    domain_overview,
    finding_list,
    findings_for,
    inspection_get,
    inspection_latest,
    inspection_list,
    version_history,
)
from qualityhub.registry.models import Domain, Environment

pytestmark = pytest.mark.django_db


def test_overview_counts_the_newest_versions(upload, judge, start, script, domain):
    team = domain.team
    script.wrong = {"T/0", "T/1", "T/2"}
    judge(upload(3))
    script.wrong = {"T/1"}
    ended = judge(upload(4, shift=1))
    other = Domain.objects.create(team=team, slug="math", name="Math")
    unjudged = Environment.objects.create(team=team, domain=other, slug="proofs", name="Proofs")
    start(upload(2, environment=unjudged))
    code, math = domain_overview(team)
    assert (code.domain, code.environments, code.running) == (domain, 1, 0)
    assert code.versions == {"rejected": 1, "partial": 1}
    assert code.tasks == {"admitted": 3, "quarantined": 1}
    assert code.findings == {"error": 1}
    assert code.last_inspected_at == ended.finished_at
    assert (math.domain, math.running) == (other, 1)
    assert math.versions == {"not_judged": 1}
    assert math.tasks == {"pending": 2}
    assert math.last_inspected_at is None


def test_overview_needs_as_many_queries_for_many_domains_as_for_one(
    team, make_version, django_assert_num_queries
):
    for number in range(12):
        domain = Domain.objects.create(team=team, slug=f"d{number}", name="D")
        for part in range(3):
            make_version(
                environment=Environment.objects.create(
                    team=team, domain=domain, slug=f"e{part}", name="E"
                )
            )
    with django_assert_num_queries(5):
        assert len(domain_overview(team)) == 13


def test_history_shows_what_decided(upload, judge, environment, django_assert_num_queries):
    first, second = upload(1), upload(2)
    decided = judge(first)
    judge(first, effort="quick")
    with django_assert_num_queries(2):
        newest, oldest = version_history(environment)
    assert (newest.version, newest.inspection, newest.inspections) == (second, None, 0)
    assert (oldest.version, oldest.inspection, oldest.inspections) == (first, decided, 2)


def test_lists_are_one_query_with_what_they_show(
    upload, judge, script, other_team, django_assert_num_queries
):
    script.wrong = {"T/0"}
    version = upload(2)
    environment, team = version.environment, version.environment.team
    inspection = judge(version)
    with django_assert_num_queries(1):
        (row,) = inspection_list(team, environment)
        assert (row.version.environment.domain.slug, row.job.status) == ("code", "succeeded")
    with django_assert_num_queries(1):
        (finding,) = finding_list([team.pk])
        assert finding.inspection.version.environment == environment
    with django_assert_num_queries(2):
        assert inspection_get(team, inspection.public_id).report["verdict"] == "partial"
    assert list(findings_for(inspection)) == [finding]
    assert inspection_latest(version) == inspection
    assert inspection_get(other_team, inspection.public_id) is None
    assert not inspection_list(other_team).exists()
    assert not finding_list([other_team.pk]).exists()


def test_findings_are_those_of_the_newest_inspection(upload, judge, script, team):
    script.wrong = {"T/0"}
    version = upload(2)
    judge(version)
    script.wrong = {"T/1"}
    judge(version, generation=1)
    assert [finding.task for finding in finding_list(team)] == ["T/1"]
