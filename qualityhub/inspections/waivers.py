"""Waivers: granted exceptions that expire. What is waived stays a finding, shown as waived."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from qualityhub.engine.errors import ConflictError, InvalidInputError
from qualityhub.engine.rules.catalogue import find_rule
from qualityhub.inspections.models import Waiver
from qualityhub.platform.audit import audit
from qualityhub.platform.text import storable

if TYPE_CHECKING:
    from qualityhub.registry.models import Environment

LONGEST = timedelta(days=366)
REASON_LENGTH = 2000


def today_utc() -> date:
    """Return the date by which waivers hold or have expired."""
    return datetime.now(UTC).date()


def waivers_in_force(environment: Environment, today: str) -> QuerySet[Waiver]:
    """Return waivers of an environment that hold on a day.

    Args:
        environment: Whose.
        today: ISO date.
    """
    return Waiver.objects.filter(
        environment=environment, revoked_at__isnull=True, until__gte=today
    ).order_by("id")


def waiver_grant(
    *, environment: Environment, code: str, task: str, reason: str, until: date, actor: str
) -> Waiver:
    """Grant an exception for a rule, of one task or of all.

    Args:
        environment: Where it holds, in every version.
        code: Rule code.
        task: Task id; empty for every task.
        reason: Why, for those who read the report.
        until: Last day on which it holds.
        actor: Who grants it, as text.

    Raises:
        InvalidInputError: No such rule, no reason, or an expiry in the past or beyond a year.
        ConflictError: One is in force already.
    """
    rule = find_rule(code)
    reason, task = storable(reason).strip(), storable(task)
    if not reason or len(reason) > REASON_LENGTH or len(task) > 512:
        raise InvalidInputError(
            "waiver.bad_reason", f"A waiver needs a reason of 1 to {REASON_LENGTH} characters."
        )
    today = today_utc()
    if not today <= until <= today + LONGEST:
        raise InvalidInputError(
            "waiver.bad_expiry",
            f"The waiver must end between {today} and {today + LONGEST}.",
            "A waiver is for the time until the fix; renew it where that takes longer.",
        )
    row = Waiver(
        environment=environment,
        code=rule.code,
        task=task,
        reason=reason,
        until=until,
        granted_by=actor[:300],
    )
    try:
        with transaction.atomic():
            # An expired one makes room; it is kept as what it was.
            Waiver.objects.filter(
                environment=environment,
                code=rule.code,
                task=task,
                revoked_at__isnull=True,
                until__lt=today,
            ).update(revoked_at=Now(), revoked_by="expired")
            row.save()
            _audit(row, "waiver.granted", actor)
    except IntegrityError as error:
        raise ConflictError(
            "waiver.exists",
            "A waiver for this rule and task is in force already.",
            "Revoke it first.",
        ) from error
    return row


def waiver_revoke(waiver: Waiver, *, actor: str) -> None:
    """End a waiver now; one that has ended stays as it is."""
    with transaction.atomic():
        ended = Waiver.objects.filter(pk=waiver.pk, revoked_at__isnull=True).update(
            revoked_at=Now(), revoked_by=actor[:300]
        )
        if ended:
            _audit(waiver, "waiver.revoked", actor)
    waiver.refresh_from_db()


def waiver_list(
    team_ids: list[int], *, environment: str = "", active: bool = False
) -> QuerySet[Waiver]:
    """Return waivers of teams, in one query with their environments.

    Args:
        team_ids: Whose.
        environment: Public id of one environment.
        active: Only those in force today.
    """
    rows = Waiver.objects.filter(environment__team__in=team_ids)
    if environment:
        rows = rows.filter(environment__public_id=environment)
    if active:
        rows = rows.filter(Q(revoked_at__isnull=True), until__gte=today_utc())
    return rows.select_related("environment__domain")


def _audit(waiver: Waiver, action: str, actor: str) -> None:
    audit(
        actor=actor,
        action=action,
        team=waiver.environment.team.public_id,
        object_id=waiver.public_id,
        object_text=f"{waiver.environment} {waiver.code} {waiver.task}".strip(),
        after={"reason": waiver.reason, "until": waiver.until.isoformat()},
    )
