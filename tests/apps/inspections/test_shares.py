"""Quotas and weights that operators set, and the fair share between domains."""

from __future__ import annotations

import threading

import pytest
from django.db import IntegrityError, connection

from qualityhub.inspections import claims
from qualityhub.inspections.choices import BatchKind, Priority
from qualityhub.inspections.models import Batch, DomainTurn, Share
from qualityhub.platform.models import AuditEvent
from qualityhub.registry.models import Domain, Environment

pytestmark = pytest.mark.django_db


@pytest.fixture
def queue(make_version, start, team):
    """``queue("math", 5)`` leaves so many batches of a domain of that name, and returns it."""

    def make(slug, count):
        domain = Domain.objects.create(team=team, slug=slug, name=slug)
        environment = Environment.objects.create(team=team, domain=domain, slug=slug, name=slug)
        inspection = start(make_version(environment=environment))
        Batch.objects.filter(inspection=inspection).delete()
        Batch.objects.bulk_create(
            Batch(
                inspection=inspection,
                domain=domain,
                priority=Priority.INTERACTIVE,
                kind=BatchKind.TRIALS,
                round=1,
                ordinal=ordinal,
            )
            for ordinal in range(count)
        )
        return domain

    return make


def claim_all():
    leases = []
    while (lease := claims.batch_claim("w")) is not None:
        leases.append(lease)
    return leases


def finish(lease):
    with claims.fenced(lease) as (_, batch):
        claims.batch_done(batch)


def test_domain_has_no_more_in_work_than_its_quota(queue):
    limited, free = queue("limited", 5), queue("free", 5)
    Share.objects.create(domain=limited, most_leased=2)
    leases = claim_all()
    domains = [lease.batch.domain_id for lease in leases]
    assert (domains.count(limited.pk), domains.count(free.pk)) == (2, 5)
    finish(next(lease for lease in leases if lease.batch.domain_id == limited.pk))
    assert [lease.batch.domain_id for lease in claim_all()] == [limited.pk]


def test_team_has_no_more_in_work_than_its_quota(queue, team):
    queue("one", 5)
    queue("two", 5)
    Share.objects.create(team=team, most_leased=3)
    assert len(claim_all()) == 3


def test_settings_bound_every_domain_and_team(queue, settings):
    queue("one", 5)
    queue("two", 5)
    settings.QH_DOMAIN_BATCHES = 2
    assert len(claim_all()) == 4
    settings.QH_TEAM_BATCHES = 5
    settings.QH_DOMAIN_BATCHES = 0
    assert len(claim_all()) == 1


def test_own_share_goes_before_the_setting(queue, settings):
    domain = queue("one", 5)
    settings.QH_DOMAIN_BATCHES = 1
    Share.objects.create(domain=domain, most_leased=4)
    assert len(claim_all()) == 4


@pytest.mark.django_db(transaction=True)
def test_quota_holds_when_many_claim_at_once(queue):
    domain = queue("limited", 40)
    Share.objects.create(domain=domain, most_leased=3)
    got, lock, ready = [], threading.Lock(), threading.Barrier(6)

    def work():
        try:
            ready.wait()
            for _ in range(4):
                if (lease := claims.batch_claim("w")) is not None:
                    with lock:
                        got.append(lease)
        finally:
            connection.close()

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 3


def test_heavier_domain_gets_its_multiple(queue):
    heavy, light = queue("heavy", 60), queue("light", 60)
    Share.objects.create(domain=heavy, weight=3)
    served = []
    for _ in range(40):
        lease = claims.batch_claim("w")
        served.append(lease.batch.domain_id)
        finish(lease)
    assert 28 <= served.count(heavy.pk) <= 32
    assert served.count(light.pk) == 40 - served.count(heavy.pk)


def test_who_comes_seldom_is_served_at_once(queue):
    queue("busy", 100)
    for _ in range(30):
        finish(claims.batch_claim("w"))
    seldom = queue("seldom", 10)
    served = []
    for _ in range(10):
        lease = claims.batch_claim("w")
        served.append(lease.batch.domain_id)
        finish(lease)
    assert served == [seldom.pk] * 10


def test_use_is_halved_every_minute(queue):
    from datetime import timedelta

    from django.utils import timezone

    domain = queue("busy", 2)
    finish(claims.batch_claim("w"))
    DomainTurn.objects.update(used=64, served_at=timezone.now() - timedelta(minutes=3))
    finish(claims.batch_claim("w"))
    assert DomainTurn.objects.get(domain=domain).used == pytest.approx(9, abs=0.1)


def test_share_is_of_a_domain_or_of_a_team(queue, team):
    with pytest.raises(IntegrityError):
        Share.objects.create(domain=queue("one", 0), team=team)


def test_operator_sets_a_share_and_it_is_recorded(admin_client, queue):
    domain = queue("one", 5)
    answer = admin_client.post(
        "/admin/inspections/share/add/",
        {"domain": domain.pk, "team": "", "most_leased": 1, "weight": 2},
    )
    assert answer.status_code == 302, answer.content.decode()
    assert len(claim_all()) == 1
    event = AuditEvent.objects.get(action="share.set")
    assert event.object_id == domain.public_id
    (share,) = Share.objects.all()
    admin_client.post(
        f"/admin/inspections/share/{share.pk}/change/",
        {"domain": domain.pk, "team": "", "most_leased": 0, "weight": 2},
    )
    share.refresh_from_db()
    assert share.most_leased == 1
