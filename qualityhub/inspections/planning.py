"""What the batches of an inspection need, decided when they are queued."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db.models.functions import Now

from qualityhub.engine.environments.placement import gpus_of, task_size
from qualityhub.inspections.models import Batch, Need, Worker
from qualityhub.inspections.needs import Needs, label_pairs, needs_from, offer_from, unmet
from qualityhub.inspections.workers import LIVE_S

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
    if needs.nothing:
        return 0
    digest = needs.digest
    # Most often it is there. Touching it each time would let all who plan wait for each other.
    known = Need.objects.filter(digest=digest, used_at__gt=Now() - _RENEWED)
    found = known.values_list("pk", flat=True).first()
    if found is not None:
        return int(found)
    Need.objects.bulk_create(
        [Need(digest=digest, document=needs.document(), used_at=Now())],
        update_conflicts=True,
        unique_fields=["digest"],
        update_fields=["used_at"],
    )
    return int(Need.objects.values_list("pk", flat=True).get(digest=digest))


def needs_purge() -> int:
    """Forget needs that no waiting batch has and that nobody planned with of late."""
    waiting = Batch.objects.filter(status__in=("queued", "leased")).values("needs")
    return Need.objects.filter(used_at__lt=Now() - NEEDS_KEPT).exclude(pk__in=waiting).delete()[0]


def prepare_needs(version: EnvironmentVersion) -> Needs:
    """Return what preparing a version needs.

    Labels and GPUs are waited for. An engine and an interpreter are asked for where some worker
    had them of late; where none had, any worker says at once what could not be measured, and why.
    """
    return needs_among(version.placement, offers_seen(settings.QH_WORKER_PATIENCE_S))


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
            labels=label_pairs(inspection.version.placement.get("labels", {})),
            without=tuple(sorted(inspection.refused)),
            gpus=gpus_of(environment),
        )
        self._keys: dict[Needs, int] = {}

    def key(self, trial: Trial) -> int:
        """Return the row of what one trial needs."""
        needs = self.of_task(trial.asks[0].task)
        if (key := self._keys.get(needs)) is None:
            key = self._keys[needs] = need_key(needs)
        return key

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
