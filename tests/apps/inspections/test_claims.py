from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from qualityhub.inspections import claims, draining
from qualityhub.inspections.bench import Bench
from qualityhub.inspections.choices import BatchKind, Priority
from qualityhub.inspections.models import Batch, DomainTurn, Inspection, TrialRecord

pytestmark = pytest.mark.django_db
committed = pytest.mark.django_db(transaction=True)


@pytest.fixture
def queue(make_version, start):
    """``queue(environment, 5)`` leaves so many batches waiting for that environment."""

    def make(environment, count, priority=Priority.INTERACTIVE):
        inspection = start(make_version(environment=environment))
        Batch.objects.filter(inspection=inspection).delete()
        return Batch.objects.bulk_create(
            Batch(
                inspection=inspection,
                domain=environment.domain,
                priority=priority,
                kind=BatchKind.TRIALS,
                round=1,
                ordinal=ordinal,
            )
            for ordinal in range(count)
        )

    return make


@pytest.fixture
def other_environment(team):
    from qualityhub.registry.models import Domain, Environment

    domain = Domain.objects.create(team=team, slug="math", name="Math")
    return Environment.objects.create(team=team, domain=domain, slug="proofs", name="Proofs")


def test_batch_is_claimed_once(queue, environment):
    queue(environment, 3)
    claimed = [claims.batch_claim("w") for _ in range(4)]
    assert claimed[3] is None
    assert len({lease.batch.pk for lease in claimed[:3]}) == 3


@committed
def test_many_workers_never_get_the_same_batch(queue, environment, other_environment):
    queue(environment, 20)
    queue(other_environment, 20)
    got, lock = [], threading.Lock()

    def work():
        try:
            while (lease := claims.batch_claim("w")) is not None:
                with lock:
                    got.append(lease.batch.pk)
        finally:
            connection.close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == len(set(got)) == 40


def test_domains_take_turns_whatever_their_backlog(queue, environment, other_environment):
    queue(environment, 50)
    queue(other_environment, 5)
    served = []
    for _ in range(10):
        lease = claims.batch_claim("w")
        served.append(lease.batch.domain_id)
        with claims.fenced(lease) as (_, batch):
            claims.batch_done(batch)
    assert served.count(other_environment.domain_id) == 5


def test_domain_with_less_work_in_hand_comes_first(queue, environment, other_environment):
    queue(environment, 5)
    held = [claims.batch_claim("w").batch.domain_id for _ in range(2)]
    queue(other_environment, 5)
    DomainTurn.objects.filter(domain=environment.domain).update(
        served_at=timezone.now() - timedelta(days=1)
    )
    following = [claims.batch_claim("w").batch.domain_id for _ in range(2)]
    assert held == [environment.domain_id] * 2
    assert following == [other_environment.domain_id] * 2


def test_higher_class_overtakes(queue, environment, other_environment):
    queue(environment, 3, Priority.AUDIT)
    queue(other_environment, 2, Priority.INTERACTIVE)
    queue(environment, 1, Priority.GATE)
    order = [claims.batch_claim("w").batch.priority for _ in range(6)]
    assert order == sorted(order)


def test_silent_workers_batch_goes_back_and_what_it_still_sends_is_refused(queue, environment):
    (batch,) = queue(environment, 1)
    first = claims.batch_claim("slow")
    assert claims.leases_expire() == 0
    Batch.objects.update(lease_until=timezone.now() - timedelta(seconds=1))
    assert claims.leases_expire() == 1
    second = claims.batch_claim("quick")
    assert second.batch.pk == first.batch.pk
    assert second.batch.attempts == 2
    assert not claims.lease_extend(first)
    assert not claims.lease_give_back(first)
    with pytest.raises(claims.LeaseLostError), claims.fenced(first):
        pass
    with claims.fenced(second) as (_, row):
        claims.batch_done(row)
    batch.refresh_from_db()
    assert batch.status == "done"


def test_given_back_in_order_counts_as_no_attempt(queue, environment):
    queue(environment, 1)
    assert claims.lease_give_back(claims.batch_claim("w"))
    assert claims.batch_claim("w").batch.attempts == 1


def test_failed_attempt_waits_before_the_next(queue, environment):
    queue(environment, 1)
    assert claims.lease_give_back(claims.batch_claim("w"), reason="it broke \0", counts=True)
    assert claims.batch_claim("w") is None
    assert claims.batches_waiting() == 0
    Batch.objects.update(ready_at=timezone.now() - timedelta(seconds=1))
    lease = claims.batch_claim("w")
    assert (lease.batch.attempts, lease.batch.last_error) == (
        2,
        "it broke \N{REPLACEMENT CHARACTER}",
    )


@committed
def test_resurrected_worker_stores_nothing(upload, start, finish, script, bench):
    """The lease goes while trials run: another worker takes over and finishes."""
    inspection = start(upload(3))
    stolen = []

    def steal(trial):
        if not stolen:
            stolen.append(trial.key)
            Batch.objects.filter(status="leased").update(
                lease_until=timezone.now() - timedelta(seconds=1)
            )
            assert claims.leases_expire() == 1
            other = Bench("worker-2")
            draining.drain(other, 60)
            other.close()

    script.during = steal
    ended = finish(inspection)
    assert ended.verdict == "admitted"
    assert script.ran.count(stolen[0]) == 2
    assert TrialRecord.objects.filter(key=stolen[0]).count() == 1
    assert TrialRecord.objects.count() == ended.trials_total == ended.trials_done
    assert ended.report["trials"]["run"] == ended.trials_total


def test_ending_worker_keeps_what_it_did_and_gives_the_rest_back(
    upload, start, finish, script, bench
):
    inspection = start(upload(6))
    ending = []
    first = Bench("worker-1", lambda: bool(ending))

    def end_at_third(trial):
        if len(script.ran) == 2:
            ending.append(True)

    script.during = end_at_third
    draining.drain(first, 60)
    stored = TrialRecord.objects.count()
    assert 0 < stored < 6
    batch = Batch.objects.get(kind="trials", status="queued")
    assert (batch.attempts, len(batch.trials)) == (0, batch.trial_count)
    ran = list(script.ran)
    script.during = None
    assert finish(inspection).verdict == "admitted"
    assert len(set(script.ran)) == TrialRecord.objects.count()
    assert len(script.ran) - len(set(script.ran)) <= len(ran) - stored


@committed
def test_cancelled_while_running_stores_nothing_more(upload, start, finish, script):
    from qualityhub.inspections.services import inspection_cancel

    inspection = start(upload(2))

    def cancel(trial):
        script.during = None
        inspection_cancel(Inspection.objects.get(), actor="owner@example.org")

    script.during = cancel
    ended = finish(inspection)
    assert ended.status == "cancelled"
    assert TrialRecord.objects.count() == 0
    assert not Batch.objects.exclude(status__in=("void", "done")).exists()


@committed
def test_tickets_follow_the_work(upload, start, finish, script, sent_tasks):
    inspection = start(upload(3))
    assert sent_tasks.sent == [("inspections.drain", (), "inspect")]
    finish(inspection)
    assert set(sent_tasks.names()) == {"inspections.drain"}


@committed
def test_lost_tickets_are_made_up_for(queue, environment, sent_tasks, monkeypatch):
    from qualityhub.inspections import tickets

    queue(environment, 3)
    sent_tasks.sent.clear()
    monkeypatch.setattr(tickets, "tickets_waiting", lambda: 1)
    assert draining.reap()["tickets"] == 2
    assert sent_tasks.names() == ["inspections.drain"] * 2
    monkeypatch.setattr(tickets, "tickets_waiting", lambda: 9)
    assert draining.reap()["tickets"] == 0


@committed
def test_drain_renews_its_ticket_while_work_waits(
    queue, environment, bench, sent_tasks, monkeypatch
):
    queue(environment, 3)
    sent_tasks.sent.clear()
    monkeypatch.setattr(Bench, "work", lambda self, lease: None)
    assert draining.drain(bench, 0) == 1
    assert sent_tasks.names() == ["inspections.drain"]
