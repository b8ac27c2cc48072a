"""Plans again what waits, after its version's labels were corrected."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from django.db import transaction

from qualityhub.inspections.choices import OPEN, BatchKind, BatchStatus
from qualityhub.inspections.models import Batch, Inspection, Need
from qualityhub.inspections.needs import label_pairs, needs_from
from qualityhub.inspections.planning import need_keys, prepare_needs
from qualityhub.inspections.tickets import tickets_send

if TYPE_CHECKING:
    from qualityhub.registry.models import EnvironmentVersion


def version_replan(version: EnvironmentVersion, **_: Any) -> None:
    """Let what waits of a version go where its placement says now."""
    opened = Inspection.objects.filter(version=version, status__in=OPEN).order_by("pk")
    for pk in list(opened.values_list("pk", flat=True)):
        with transaction.atomic():
            _replan(pk, version)


def _replan(pk: int, version: EnvironmentVersion) -> None:
    rows = Inspection.objects.select_for_update(of=("self",)).filter(pk=pk, status__in=OPEN)
    refused = rows.values_list("refused", flat=True).first()
    if refused is None:
        return
    queued = Batch.objects.filter(inspection=pk, status=BatchStatus.QUEUED)
    preparing = queued.filter(kind=BatchKind.PREPARE)
    trials = queued.filter(kind=BatchKind.TRIALS)
    keys = set(trials.values_list("needs", flat=True))
    documents = {0: {}, **dict(Need.objects.filter(pk__in=keys).values_list("pk", "document"))}
    labels = label_pairs(version.placement.get("labels", {}))
    changed = {
        key: replace(needs_from(documents[key]), labels=labels) for key in keys & set(documents)
    }
    prepare = replace(prepare_needs(version), without=tuple(sorted(refused)))
    found = need_keys([*changed.values(), prepare])
    if preparing.exclude(needs=found[prepare]).update(needs=found[prepare]):
        rows.update(engine_asked=prepare.engine)
    # By primary key: what one step changed may have the needs that the next one looks for.
    batches = {key: list(trials.filter(needs=key).values_list("pk", flat=True)) for key in changed}
    for key, pks in batches.items():
        queued.filter(pk__in=pks).update(needs=found[changed[key]])
    tickets_send(1)
