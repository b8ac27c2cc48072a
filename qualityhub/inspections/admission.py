"""What training may use: written when an inspection ends, asked by digest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.db import connection
from django.db.models.functions import Now

from qualityhub.inspections.choices import InspectionStatus
from qualityhub.inspections.models import Inspection
from qualityhub.platform.audit import audit
from qualityhub.registry.choices import Admission
from qualityhub.registry.models import EnvironmentVersion

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from qualityhub.engine.report import InspectionReport

MOST_DIGESTS = 512
JUDGED = {"admitted": True, "quarantined": False}
"""Task verdicts as the registry keeps them; pending and error are no judgement."""

TASKS = """
UPDATE registry_task AS t SET admitted = v.admitted
FROM unnest(%s::int[], %s::bool[]) AS v (position, admitted)
WHERE t.version_id = %s AND t.position = v.position AND t.admitted IS DISTINCT FROM v.admitted
"""
ASK_TASKS = """
SELECT t.digest, bool_or(t.admitted IS FALSE), bool_or(t.admitted), bool_or(t.role = 'gate')
FROM registry_task t
JOIN registry_environmentversion v ON v.id = t.version_id
JOIN registry_environment e ON e.id = v.environment_id
WHERE t.digest = ANY (%s) AND e.team_id = ANY (%s)
GROUP BY t.digest
"""
# The worst of equal versions comes last, so that it is what is said.
ASK_VERSIONS = """
SELECT v.digest, v.admission
FROM registry_environmentversion v
JOIN registry_environment e ON e.id = v.environment_id
WHERE v.digest = ANY (%s) AND e.team_id = ANY (%s)
ORDER BY CASE WHEN v.admission = 'admitted' THEN 0 WHEN v.admission IS NULL THEN 1 ELSE 2 END
"""


def admission_apply(inspection: Inspection, report: InspectionReport) -> None:
    """Write a verdict to the version and its tasks, within the transaction that ends it.

    An inspection that only informs writes nothing, and an older one does not undo a newer one.
    """
    version = EnvironmentVersion.objects.select_for_update().get(pk=inspection.version_id)
    newer = Inspection.objects.filter(
        version=version, decides=True, status=InspectionStatus.FINISHED, pk__gt=inspection.pk
    )
    if not inspection.decides or newer.exists():
        return
    # By position: ids are foreign text, and rows may hold a cleaned form of them.
    positions = list(range(len(report.tasks)))
    judged = [JUDGED.get(task.verdict) for task in report.tasks]
    with connection.cursor() as cursor:
        cursor.execute(TASKS, [positions, judged, version.pk])
    _set(inspection, version, Admission(report.verdict))


def admission_unknown(inspection: Inspection) -> None:
    """Say that a version could not be judged, where nothing was known of it so far."""
    version = EnvironmentVersion.objects.select_for_update().get(pk=inspection.version_id)
    if version.admission is None and inspection.decides:
        _set(inspection, version, Admission.ERROR)


def _set(inspection: Inspection, version: EnvironmentVersion, admission: Admission) -> None:
    if version.admission == admission:
        return
    before = version.admission
    EnvironmentVersion.objects.filter(pk=version.pk).update(
        admission=admission, admission_changed_at=Now()
    )
    audit(
        actor="system",
        action="admission.changed",
        team=inspection.team.public_id,
        object_id=version.public_id,
        object_text=str(inspection.version.environment),
        before={"admission": before},
        after={"admission": admission, "inspection": inspection.public_id},
    )


@dataclass(frozen=True, slots=True)
class Answer:
    """Whether training may use what a digest names.

    Attributes:
        digest: As asked.
        admitted: Whether it may.
        reason: ``admitted``, ``unknown``, ``not_judged``, ``quarantined``, ``gate_task``,
            ``partial`` (a version of which only some tasks are admitted), or the version's state.
    """

    digest: str
    admitted: bool
    reason: str


def admission_check(team_ids: Iterable[int], digests: Sequence[str]) -> list[Answer]:
    """Answer for versions and tasks by digest, in the order asked; two queries.

    The same task may be in several versions: one quarantine outweighs every admission.
    """
    known: dict[str, tuple[bool, str]] = {}
    given: list[Any] = [list(digests), list(team_ids)]
    with connection.cursor() as cursor:
        cursor.execute(ASK_TASKS, given)
        for digest, bad, good, gate in cursor.fetchall():
            known[digest] = _task_answer(bad=bad, good=good, gate=gate)
        cursor.execute(ASK_VERSIONS, given)
        for digest, admission in cursor.fetchall():
            state = admission or "not_judged"
            known[digest] = (state == Admission.ADMITTED, state)
    return [Answer(digest, *known.get(digest, (False, "unknown"))) for digest in digests]


def _task_answer(*, bad: bool, good: bool | None, gate: bool) -> tuple[bool, str]:
    if bad:
        return False, "quarantined"
    if gate:
        return False, "gate_task"
    return (True, "admitted") if good else (False, "not_judged")
