"""Idempotency keys: a POST that is sent twice happens once.

The key's row is written in the transaction of the work itself: either both are stored or neither.
Whoever arrives while the first attempt still runs is told so (409) instead of waiting.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any

from django.db import connection, models, transaction
from django.db.models.functions import Now
from rest_framework.response import Response
from rest_framework.utils.encoders import JSONEncoder

from qualityhub.engine.errors import ConflictError, InvalidInputError
from qualityhub.platform.problems import BadQueryError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import timedelta

    from rest_framework.request import Request

HEADER = "Idempotency-Key"
SHAPE = re.compile(r"[\x21-\x7e]{1,200}")
KEPT_HEADERS = ("Location",)


class IdempotencyKey(models.Model):
    """A key that was used, and what was answered."""

    actor = models.CharField(max_length=100)
    key = models.CharField(max_length=200)
    path = models.CharField(max_length=300)
    body_digest = models.CharField(max_length=64)
    status = models.PositiveSmallIntegerField()
    headers = models.JSONField(default=dict)
    body = models.JSONField(null=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        """A key means one thing to one actor."""

        constraints = (
            models.UniqueConstraint(fields=["actor", "key"], name="idempotency_actor_key"),
        )
        indexes = (models.Index(fields=["created_at"], name="idempotency_created"),)

    def __str__(self) -> str:
        return f"{self.actor} {self.key}"


def idempotent(
    request: Request,
    actor: str,
    work: Callable[[], Response],
    *,
    digest: Callable[[], str] | None = None,
) -> Response:
    """Do the work once per key, in one transaction with the key's row.

    Args:
        request: The POST; without the header the work is simply done, in a transaction.
        actor: Whose key it is: a token's or a user's public id.
        work: Returns the answer; what it raises is stored nowhere and may be tried again.
        digest: Digest of the decoded body; read after the work, so that a stream can be consumed
            by it first. For a replay the caller's function must be able to read the stream itself.
            Left out: the digest of the parsed body and of every uploaded file.

    Raises:
        BadQueryError: The header is not 1 to 200 visible characters.
        InvalidInputError: ``idempotency.mismatch``: the key was used for something else.
        ConflictError: ``idempotency.in_progress``: its first use has not ended yet.
    """
    key = request.headers.get(HEADER, "")
    if not key:
        with transaction.atomic():
            return work()
    if not SHAPE.fullmatch(key):
        raise BadQueryError(
            "idempotency.bad_key", f"{HEADER} must be 1 to 200 visible ASCII characters."
        )
    path = f"{request.method} {request.path}"[:300]
    with transaction.atomic():
        stored = idempotency_begin(actor, key)
        if stored is not None:
            return idempotency_replay(stored, path, (digest or (lambda: body_digest(request)))())
        first = body_digest(request) if digest is None else ""
        response = work()
        idempotency_store(actor, key, path, response, digest=first if digest is None else digest())
        return response


def idempotency_begin(actor: str, key: str) -> IdempotencyKey | None:
    """Reserve a key for this transaction, and return its row where it was used already.

    Raises:
        ConflictError: Another transaction is using it right now.
    """
    name = int.from_bytes(hashlib.sha256(f"{actor}\0{key}".encode()).digest()[:8], signed=True)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [name])
        (free,) = cursor.fetchone()
    if not free:
        raise ConflictError(
            "idempotency.in_progress",
            "A request with this Idempotency-Key is still being answered.",
            "Wait a moment and send it again.",
        )
    return IdempotencyKey.objects.filter(actor=actor, key=key).first()


def idempotency_replay(stored: IdempotencyKey, path: str, digest: str) -> Response:
    """Return the first answer again.

    Raises:
        InvalidInputError: The key was used with another path or body.
    """
    if stored.path != path or stored.body_digest != digest:
        raise InvalidInputError(
            "idempotency.mismatch",
            "This Idempotency-Key was used for a different request.",
            "Use a new key for every new request.",
        )
    headers = {**stored.headers, "Idempotency-Replayed": "true"}
    return Response(stored.body, status=stored.status, headers=headers)


def idempotency_store(actor: str, key: str, path: str, response: Response, *, digest: str) -> None:
    """Write down what was answered, in the transaction of the work."""
    IdempotencyKey.objects.create(
        actor=actor,
        key=key,
        path=path,
        body_digest=digest,
        status=response.status_code,
        headers={name: response[name] for name in KEPT_HEADERS if response.has_header(name)},
        body=json.loads(json.dumps(response.data, cls=JSONEncoder)),
    )


def body_digest(request: Request) -> str:
    """Return the sha256 of what the body says: parsed fields, and uploaded files by content."""
    digest = hashlib.sha256()
    files: Mapping[str, Any] = request.FILES
    fields = (
        {
            key: request.data.getlist(key)
            if hasattr(request.data, "getlist")
            else request.data[key]
            for key in request.data
            if key not in files
        }
        if isinstance(request.data, dict)
        else request.data
    )
    digest.update(json.dumps(fields, sort_keys=True, default=str).encode())
    for name in sorted(files):
        upload = files[name]
        digest.update(f"\0{name}\0{upload.size}\0".encode())
        for chunk in upload.chunks():
            digest.update(chunk)
        upload.seek(0)
    return digest.hexdigest()


def idempotency_purge(older_than: timedelta) -> int:
    """Forget keys of that age; returns how many."""
    return IdempotencyKey.objects.filter(created_at__lt=Now() - older_than).delete()[0]
