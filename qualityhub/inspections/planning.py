"""What the batches of an inspection need, decided when they are queued."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db import transaction
from django.db.models.functions import Now

from qualityhub.engine.environments.placement import gpus_of, task_size
from qualityhub.inspections.models import Batch, Need, Worker
from qualityhub.inspections.needs import Needs, label_pairs, needs_from, offer_from, unmet
from qualityhub.inspections.workers import LIVE_S
from qualityhub.registry.placements import placement_known

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from qualityhub.engine.environments.model import Environment
    from qualityhub.engine.trials.model import Trial, World
    from qualityhub.inspections.models import Inspection
    from qualityhub.inspections.needs import Offer
    from qualityhub.registry.models import EnvironmentVersion

NEEDS_KEPT = timedelta(days=2)
_RENEWED = timedelta(hours=12)


def need_key(needs: Needs) -> int:
    """Return the row of these needs, made where it is missing; 0 where any worker will do."""
    return need_keys([needs])[needs]


def need_keys(wanted: Iterable[Needs]) -> dict[Needs, int]:
    """Return the rows of several needs, made where they are missing; see :func:`need_key`.

    Who plans with several in one transaction asks for all at once: rows are locked by digest, so
    that two planners never wait for each other in a ring.
    """
    digests = {needs: "" if needs.nothing else needs.digest for needs in wanted}
    asked = Need.objects.filter(digest__in=set(digests.values()) - {""})
    # Most often all are there. Touching them each time would let all who plan wait for each other.
    fresh = set(asked.filter(used_at__gt=Now() - _RENEWED).values_list("digest", flat=True))
    missing = {digest: needs for needs, digest in digests.items() if digest and digest not in fresh}
    Need.objects.bulk_create(
        [
            Need(digest=digest, document=needs.document(), used_at=Now())
            for digest, needs in sorted(missing.items(), key=itemgetter(0))
        ],
        update_conflicts=True,
        unique_fields=["digest"],
        update_fields=["used_at"],
    )
    keys = dict(asked.values_list("digest", "pk")) if any(digests.values()) else {}
    return {needs: int(keys[digest]) if digest else 0 for needs, digest in digests.items()}


def needs_purge() -> int:
    """Forget needs that no waiting batch has and that nobody planned with of late."""
    waiting = Batch.objects.filter(status__in=("queued", "leased")).values("needs")
    old = Need.objects.filter(used_at__lt=Now() - NEEDS_KEPT).exclude(pk__in=waiting)
    with transaction.atomic():
        # In the order of planners. Whom one of them has in hand is not old.
        locked = old.select_for_update(skip_locked=True).order_by("digest")
        return Need.objects.filter(pk__in=list(locked.values_list("pk", flat=True))).delete()[0]


def prepare_needs(version: EnvironmentVersion) -> Needs:
    """Return what preparing a version needs.

    Labels and GPUs are waited for. An engine and an interpreter are asked for where some worker
    had them of late; where none had, any worker says at once what could not be measured, and why.
    """
    return needs_among(placement_known(version), offers_seen(settings.QH_WORKER_PATIENCE_S))


def needs_among(asked: Mapping[str, Any], offers: Iterable[Offer]) -> Needs:
    """Return what a placement needs where these are the workers; see :func:`prepare_needs`.

    One worker must have all of it: an engine here does not help what only runs there.
    """
    needs = Needs(gpus=asked.get("gpus", 0), labels=label_pairs(asked.get("labels", {})))
    known = list(offers)
    for wish in (
        {"engine": True} if asked.get("image") else {},
        {"python": asked["python"]} if asked.get("python") else {},
    ):
        wished = replace(needs, **wish)
        if wish and any(not unmet(wished, offer) for offer in known):
            needs = wished
    return needs


class TrialNeeds:
    """What the trials of a prepared inspection need: a worker that can have their very world.

    Args:
        inspection: Prepared.
        environment: The parsed package.
        worlds: By task id.
    """

    def __init__(
        self, inspection: Inspection, environment: Environment, worlds: Mapping[str, World]
    ) -> None:
        self._worlds = worlds
        self._environment = environment
        self._tasks = {task.id: task for task in environment.tasks}
        self._common = Needs(
            arch=inspection.inputs["host"].get("arch", ""),
            ownership=inspection.inputs.get("ownership", ""),
            labels=label_pairs(placement_known(inspection.version).get("labels", {})),
            without=tuple(sorted(inspection.refused)),
            gpus=gpus_of(environment),
        )

    def keys(self, trials: Iterable[Trial]) -> list[int]:
        """Return the row of what each trial needs."""
        of_tasks: dict[str, Needs] = {}
        tasks = [trial.asks[0].task for trial in trials]
        for task_id in tasks:
            if task_id not in of_tasks:
                of_tasks[task_id] = self.of_task(task_id)
        rows = need_keys(of_tasks.values())
        return [rows[of_tasks[task_id]] for task_id in tasks]

    def of_task(self, task_id: str) -> Needs:
        """Return what the trials of a task need."""
        world = self._worlds.get(task_id) or self._worlds[""]
        task = self._tasks.get(task_id)
        size = task_size(self._environment, task) if task else {}
        return replace(
            self._common,
            provider=world.provider,
            engine=bool(world.base),
            python=f"=={world.python}" if _of_host(world) else "",
            memory_mib=size.get("memory_mib", 0),
            cpus=size.get("cpus", 0),
            gpus=max(self._common.gpus, size.get("gpus", 0)),
        )


def without(document: Mapping[str, Any], session: str) -> Needs:
    """Return stored needs, and not that worker."""
    needs = needs_from(document)
    return replace(needs, without=tuple(sorted({*needs.without, session})))


def _of_host(world: World) -> bool:
    return bool(world.python) and not world.base and world.provider != "container"


def offers_seen(seconds: float = 0) -> list[Offer]:
    """Return what the workers offer that live, or that were seen in the last seconds."""
    since = Now() - timedelta(seconds=max(seconds, LIVE_S))
    seen = Worker.objects.filter(seen_at__gt=since)
    return [offer_from(offer) for offer in seen.values_list("offer", flat=True)]
