"""Writing gate policies: versions that are added, never edited."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

from django.db import transaction

from qualityhub.accounts.models import Team
from qualityhub.engine.errors import InvalidInputError, LimitExceededError
from qualityhub.engine.gate.policy import GatePolicy as EnginePolicy
from qualityhub.engine.gate.policy import gate_policy_from
from qualityhub.engine.policy import admission_policy_from, unknown_key
from qualityhub.gates.models import GatePolicy
from qualityhub.gates.services.runs import checked_name
from qualityhub.platform.audit import audit

if TYPE_CHECKING:
    from typing import Any

TEXT_BYTES = 64 * 1024
TABLES = ("admission", "gate")


def policy_create(
    *, team: Team, text: str, name: str = "", actor: str = "system"
) -> tuple[GatePolicy, bool]:
    """Store a policy file as the next version of its name.

    Args:
        team: Whose it is.
        text: The TOML file; its ``[gate]`` table is what gates read.
        name: Name to version it under; the policy's own where left out.
        actor: For the audit log.

    Returns:
        The version, and whether it is new: the newest version's content again makes none.

    Raises:
        InvalidInputError: Not TOML, an unknown key, a wrong type.
        LimitExceededError: Larger than 64 KiB.
    """
    policy = policy_parse(text)
    name = name or policy.name
    checked_name("policies", name)
    with transaction.atomic():
        # Versions count up: two at once take turns.
        Team.objects.select_for_update(no_key=True).get(pk=team.pk)
        newest = GatePolicy.objects.filter(team=team, name=name).order_by("-version").first()
        if newest is not None and newest.text == text and not newest.retired:
            return newest, False
        row = GatePolicy.objects.create(
            team=team,
            name=name,
            version=newest.version + 1 if newest else 1,
            text=text,
            digest=policy.version,
            created_by=actor[:300],
        )
        audit(
            actor=actor,
            action="policy.created",
            team=team.public_id,
            object_id=row.public_id,
            object_text=str(row),
            before={"digest": newest.digest} if newest else None,
            after={"digest": row.digest},
        )
    return row, True


def policy_retire(*, policy: GatePolicy, actor: str = "system") -> GatePolicy:
    """Keep a version from new gates; what it decided stays. Twice changes nothing."""
    with transaction.atomic():
        if GatePolicy.objects.filter(pk=policy.pk, retired=False).update(retired=True):
            audit(
                actor=actor,
                action="policy.retired",
                team=policy.team.public_id,
                object_id=policy.public_id,
                object_text=str(policy),
            )
    policy.retired = True
    return policy


def policy_parse(text: str) -> EnginePolicy:
    """Return the gate policy of a TOML text; all of the text is checked.

    Raises:
        InvalidInputError: Not TOML, an unknown table or key, a wrong type.
        LimitExceededError: Larger than 64 KiB.
    """
    if len(text.encode("utf-8", "replace")) > TEXT_BYTES:
        raise LimitExceededError(
            "policy.too_large", f"A policy has at most {TEXT_BYTES // 1024} KiB."
        )
    if "\0" in text:
        raise InvalidInputError("policy.not_toml", "The policy contains a NUL character.")
    try:
        document: dict[str, Any] = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidInputError("policy.not_toml", f"The policy is not TOML: {error}.") from error
    for table in document:
        if table not in TABLES:
            raise unknown_key("policy", table, list(TABLES))
    admission = document.get("admission", {})
    if not isinstance(admission, dict):
        raise InvalidInputError("input.wrong_type", "[admission] must be a table.")
    admission_policy_from(admission)
    return gate_policy_from(document.get("gate", {}))
