from __future__ import annotations

import threading

import pytest
from django.db import connection, transaction
from rest_framework.response import Response

from qualityhub.accounts.models import Team
from qualityhub.engine.errors import ConflictError
from qualityhub.platform.idempotency import (
    IdempotencyKey,
    idempotency_begin,
    idempotency_purge,
    idempotency_store,
)


@pytest.mark.django_db(transaction=True)
def test_second_use_while_the_first_still_runs_is_told_so():
    begun, go_on, outcome = threading.Event(), threading.Event(), []

    def first():
        with transaction.atomic():
            idempotency_begin("tok_a", "k")
            begun.set()
            go_on.wait(10)
            idempotency_store("tok_a", "k", "POST /x", Response({"n": 1}, 201), digest="d")
        connection.close()

    thread = threading.Thread(target=first)
    thread.start()
    assert begun.wait(10)
    try:
        with pytest.raises(ConflictError) as caught, transaction.atomic():
            idempotency_begin("tok_a", "k")
        outcome.append(caught.value.code)
        with transaction.atomic():
            assert idempotency_begin("tok_b", "k") is None
    finally:
        go_on.set()
        thread.join(10)
    assert outcome == ["idempotency.in_progress"]
    with transaction.atomic():
        stored = idempotency_begin("tok_a", "k")
    assert (stored.status, stored.body) == (201, {"n": 1})


@pytest.mark.django_db(transaction=True)
def test_key_and_work_are_stored_together_or_not_at_all(owner_api):
    def attempt():
        with transaction.atomic():
            idempotency_begin("tok_a", "k")
            Team.objects.create(slug="half", name="Half")
            idempotency_store("tok_a", "k", "POST /x", Response({}, 201), digest="d")
            raise RuntimeError("the process dies here")

    with pytest.raises(RuntimeError, match="dies"):
        attempt()
    assert not Team.objects.filter(slug="half").exists()
    assert not IdempotencyKey.objects.exists()


@pytest.mark.django_db
def test_old_keys_are_forgotten():
    from datetime import timedelta

    from django.utils import timezone

    with transaction.atomic():
        for key in ("old", "new"):
            idempotency_store("tok_a", key, "POST /x", Response({}, 201), digest="d")
    old = timezone.now() - timedelta(hours=25)
    IdempotencyKey.objects.filter(key="old").update(created_at=old)
    assert idempotency_purge(timedelta(hours=24)) == 1
    assert IdempotencyKey.objects.get().key == "new"
