from __future__ import annotations

import json
import random
import threading

import pytest

from qualityhub.engine.errors import ConflictError
from qualityhub.gates.models import EvalRun, Rollout, TaskKey
from qualityhub.gates.services import (
    checkpoint_create,
    eval_run_create,
    eval_run_seal,
    rollouts_ingest,
    rollups_verify,
    rows_from,
)
from qualityhub.gates.stream import RowStream

pytestmark = pytest.mark.django_db(transaction=True)


def at_once(jobs):
    """Run functions in threads with connections of their own; returns results and errors."""
    from django.db import connection

    gate = threading.Barrier(len(jobs))
    results, errors = [], []

    def work(job):
        try:
            gate.wait(20)
            results.append(job())
        except Exception as error:  # noqa: BLE001 - whatever it is, the test looks at it.
            errors.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=work, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return results, errors


def sender(run, rows, domains):
    body = "".join(json.dumps(row) + "\n" for row in rows).encode()
    fresh = EvalRun.objects.select_related("domain").get(pk=run.pk)
    return lambda: rollouts_ingest(run=fresh, stream=RowStream(rows_from([body])), domains=domains)


def test_the_same_new_tasks_from_many_sides_do_not_deadlock(team, domain):
    checkpoint = checkpoint_create(team=team, name="c")
    rows = [{"task": f"t{number}", "attempt": 0, "reward": 1} for number in range(400)]
    jobs = []
    for number in range(4):
        run = eval_run_create(checkpoint=checkpoint, name=f"r{number}", domain=domain)
        mixed = rows[:]
        random.Random(number).shuffle(mixed)
        jobs.append(sender(run, mixed, {domain.slug: domain.pk}))
    results, errors = at_once(jobs)
    assert errors == []
    assert [result.inserted for result in results] == [400] * 4
    assert TaskKey.objects.count() == 400


def test_overlapping_requests_of_one_run_count_every_row_once(team, domain):
    run = eval_run_create(
        checkpoint=checkpoint_create(team=team, name="c"), name="r", domain=domain
    )
    jobs = []
    for number in range(4):
        rows = [
            # The first fifty contradict each other, the rest repeats.
            {"task": f"t{task}", "attempt": 0, "reward": number if task < 50 else 1}
            for task in range(300)
        ]
        random.Random(number).shuffle(rows)
        jobs.append(sender(run, rows, {domain.slug: domain.pk}))
    results, errors = at_once(jobs)
    assert errors == []
    assert sum(result.inserted for result in results) == 300 == Rollout.objects.count()
    assert sum(result.conflicts_total for result in results) == 3 * 50
    assert sum(result.duplicates for result in results) == 3 * 250
    run.refresh_from_db()
    assert (run.rows, run.conflicts, run.duplicates) == (300, 150, 750)
    assert rollups_verify(run) == []


def test_nothing_arrives_after_the_seal(team, domain):
    run = eval_run_create(
        checkpoint=checkpoint_create(team=team, name="c"), name="r", domain=domain
    )
    domains = {domain.slug: domain.pk}
    sender(run, [{"task": "first", "attempt": 0, "reward": 1}], domains)()
    jobs = [
        sender(run, [{"task": f"t{n}-{i}", "attempt": 0, "reward": 1} for i in range(50)], domains)
        for n in range(3)
    ]
    results, errors = at_once([*jobs, lambda: eval_run_seal(run=run)])
    sealed = next(item for item in results if isinstance(item, EvalRun))
    assert all(isinstance(error, ConflictError) for error in errors)
    assert all(error.code == "runs.sealed" for error in errors)
    assert Rollout.objects.count() == sealed.rows == 1 + 50 * (3 - len(errors))
