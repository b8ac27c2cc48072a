"""The admission policy of a domain: versioned rows, the newest in force."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from django.db import transaction

from qualityhub.engine.errors import InvalidInputError
from qualityhub.engine.policy import EFFORTS, AdmissionPolicy, admission_policy_from
from qualityhub.engine.rules.catalogue import select_rules
from qualityhub.inspections.models import AdmissionPolicyVersion
from qualityhub.platform.audit import audit
from qualityhub.platform.text import storable_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from qualityhub.registry.models import Domain


def policy_of(domain: Domain) -> AdmissionPolicy:
    """Return the policy in force for a domain; the built-in one where none was set."""
    row = policy_row(domain)
    return admission_policy_from(row.document) if row else AdmissionPolicy()


def policy_row(domain: Domain) -> AdmissionPolicyVersion | None:
    """Return the newest version of a domain's policy, or None."""
    return AdmissionPolicyVersion.objects.filter(domain=domain).order_by("-number").first()


def policy_table(policy: AdmissionPolicy) -> dict[str, Any]:
    """Return the ``[admission]`` table that says this policy."""
    table = policy.as_json()
    del table["version"]
    return table


def policy_parse(table: Mapping[str, Any]) -> AdmissionPolicy:
    """Return the policy of a table from outside, checked to its rule codes.

    Raises:
        InvalidInputError: An unknown key, a wrong type, or a rule code that does not exist.
    """
    policy = admission_policy_from(_storable(table))
    codes = tuple(policy.severity) + policy.relax
    select_rules(codes, policy.ignore)
    return policy


def policy_set(*, domain: Domain, table: Mapping[str, Any], actor: str) -> AdmissionPolicyVersion:
    """Put a new version of a domain's policy in force; the same content again changes nothing.

    Args:
        domain: Whose policy.
        table: The ``[admission]`` table.
        actor: Who decides, as text.

    Raises:
        InvalidInputError: The table is no policy.
    """
    policy = policy_parse(table)
    with transaction.atomic():
        # Numbers are given out one at a time per domain.
        type(domain).objects.select_for_update().get(pk=domain.pk)
        last = policy_row(domain)
        if last is not None and last.digest == policy.version:
            return last
        row = AdmissionPolicyVersion.objects.create(
            domain=domain,
            number=last.number + 1 if last else 1,
            document=policy_table(policy),
            digest=policy.version,
            created_by=actor[:300],
        )
        audit(
            actor=actor,
            action="admission_policy.set",
            team=domain.team.public_id,
            object_id=row.public_id,
            object_text=f"{domain.slug} {row.number}",
            before=last.document if last else None,
            after=row.document,
        )
    return row


def policy_choose(
    domain: Domain, table: Mapping[str, Any] | None, effort: str | None
) -> tuple[AdmissionPolicy, bool]:
    """Return the policy of one inspection, and whether its verdict may change what is admitted.

    Whoever starts an inspection may look with other eyes; admitted is only what the domain's own
    policy admits, tried no less hard than it asks for.

    Raises:
        InvalidInputError: The table is no policy, or the effort is none.
    """
    own = policy_of(domain)
    policy = policy_parse(table) if table is not None else own
    if effort is not None:
        if effort not in EFFORTS:
            raise InvalidInputError(
                "input.bad_effort",
                f"The effort {str(effort)[:40]!r} is none.",
                f"Choose one of: {', '.join(EFFORTS)}.",
            )
        policy = replace(policy, effort=effort)
    same = replace(policy, name=own.name, effort=own.effort) == own
    return policy, same and EFFORTS.index(policy.effort) >= EFFORTS.index(own.effort)


def _storable(table: Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(table, dict):
        raise InvalidInputError("input.wrong_type", "A policy is a table of keys and values.")
    cleaned = storable_json(table)
    assert isinstance(cleaned, dict)
    return cleaned
