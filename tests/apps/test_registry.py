from __future__ import annotations

import threading

import pytest
from django.db import connection

from qualityhub.platform.audit import AuditEvent
from qualityhub.registry.models import EnvironmentVersion
from qualityhub.registry.services import domain_ensure, environment_ensure, version_register


@pytest.mark.django_db(transaction=True)
def test_the_same_content_at_the_same_time_is_one_version(environment):
    barrier, outcomes = threading.Barrier(4), []

    def register():
        barrier.wait(10)
        try:
            outcomes.append(
                version_register(
                    environment=environment, actor="system", source="gymnasium:CartPole-v1"
                )
            )
        finally:
            connection.close()

    threads = [threading.Thread(target=register) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    version = EnvironmentVersion.objects.get()
    assert [outcome.version.pk for outcome in outcomes] == [version.pk] * 4
    assert sum(outcome.created for outcome in outcomes) == 1
    assert version.tasks.count() == version.task_count
    assert AuditEvent.objects.filter(action="version.registered").count() == 1


@pytest.mark.django_db
def test_ensuring_twice_makes_one(team):
    domains = [domain_ensure(team=team, slug="math", actor="system") for _ in range(2)]
    assert domains[0] == domains[1]
    environments = [
        environment_ensure(domain=domains[0], slug="sums", actor="system") for _ in range(2)
    ]
    assert environments[0] == environments[1]
    assert environments[0].team == team
