"""Goes on with verdicts that are pending for want of an engine, once a worker with one appears."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from django.db.models import Q

from qualityhub.engine.digest import digest_json
from qualityhub.inspections.choices import InspectionStatus, Trigger
from qualityhub.inspections.models import Inspection
from qualityhub.inspections.planning import needs_among, offers_seen
from qualityhub.inspections.services import inspection_start
from qualityhub.registry.models import EnvironmentVersion
from qualityhub.registry.placements import placement_known

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from qualityhub.inspections.needs import Offer

AT_ONCE = 20


def engine_arrived() -> int:
    """Inspect again what was prepared while no fitting worker had an engine.

    Only newest versions whose newest inspection left something pending and was prepared without
    asking for an engine, and only where the new one will ask for it: by the same rule as its
    planning. So once is enough, whatever it comes to.

    Returns:
        How many began.
    """
    offers = offers_seen()
    if not any(offer.engine for offer in offers):
        return 0
    found = (
        Inspection.objects.filter(pk__in=list(islice(_better_now(offers), AT_ONCE)))
        .select_related("version__environment__domain", "version__environment__team")
        .defer("report", "worlds", "inputs")
        .order_by("pk")
    )
    return sum(_begin(inspection) for inspection in found)


def _better_now(offers: Sequence[Offer]) -> Iterator[int]:
    """Yield pending inspections whose preparation would ask for an engine now.

    All are looked through: what no worker fits must not hide the rest.
    """
    versions = (
        EnvironmentVersion.objects.order_by("environment_id", "-pk")
        .distinct("environment_id")
        .values("pk")
    )
    newest = (
        Inspection.objects.filter(
            Q(version__placement__image=True) | Q(version__placed=False, version__placement={}),
            version__in=versions,
        )
        .order_by("version_id", "-pk")
        .distinct("version_id")
        .values("pk")
    )
    pending = Inspection.objects.filter(
        Q(verdict="pending") | Q(task_counts__pending__gt=0),
        pk__in=newest,
        status=InspectionStatus.FINISHED,
        engine_asked=False,
    ).order_by("pk")
    answers: dict[str, bool] = {}
    read = 0
    for pk, known, version in pending.values_list("pk", "version__placement", "version"):
        placement = known
        if not known and read < AT_ONCE:  # From before rows said it.
            placement = placement_known(EnvironmentVersion.objects.get(pk=version))
            read += 1
        name = digest_json("placement", placement)
        if name not in answers:
            answers[name] = needs_among(placement, offers).engine
        if answers[name]:
            yield pk


def _begin(inspection: Inspection) -> bool:
    begun = inspection_start(
        version=inspection.version,
        actor="system",
        trigger=Trigger.AUDIT,
        audit_reason="a worker with a container engine appeared",
    )
    return begun.pk > inspection.pk  # Else an older one still waits with the same question.
