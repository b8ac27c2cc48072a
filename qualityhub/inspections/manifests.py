"""The manifest: all tasks that training may use, as one document made once per change.

A revision per team is raised by database triggers whenever what a manifest says may have changed,
so that "not modified" costs one indexed row. The document of a revision is made on first demand
and kept as a compressed file; its bytes depend on nothing but the rows.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import tempfile
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, OuterRef, Q

from qualityhub.inspections.choices import InspectionStatus
from qualityhub.inspections.models import AdmissionRevision, Inspection
from qualityhub.registry.choices import Admission, TaskRole
from qualityhub.registry.models import EnvironmentVersion, Task

if TYPE_CHECKING:
    from qualityhub.accounts.models import Team
    from qualityhub.registry.models import Domain

SCHEMA = "qualityhub.manifest/1"
TRIES = 4
KEPT = 8
"""Documents kept per team and filter; readers may still be at an older one."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """One state of what a team's training may use.

    Attributes:
        etag: Strong validator, quoted.
        name: File name of its document.
        changed_at: When something last changed.
        team: Whose.
        domain: Which domain alone, or None for all.
    """

    etag: str
    name: str
    changed_at: datetime
    team: Team
    domain: Domain | None


def manifest_state(team: Team, domain: Domain | None = None) -> Manifest:
    """Return the present state; one query, no document is made."""
    return _state(team, domain)


def _state(team: Team, domain: Domain | None, *, lock: bool = False) -> Manifest:
    rows = AdmissionRevision.objects.filter(team=team)
    row = (rows.select_for_update() if lock else rows).first()
    revision = row.revision if row else 0
    changed_at = row.changed_at if row else team.created_at
    place = domain.public_id if domain else "all"
    mark = f"{SCHEMA} {team.public_id} {place} {revision} {changed_at.isoformat()}"
    digest = hashlib.sha256(mark.encode()).hexdigest()[:32]
    return Manifest(f'"{digest}"', f"{place}-{digest}.json.gz", changed_at, team, domain)


def manifest_file(manifest: Manifest) -> tuple[Manifest, Path]:
    """Return the compressed document, and the state it is of: a newer one where rows changed."""
    folder = Path(settings.QH_HOME) / "manifests" / manifest.team.public_id
    for attempt in range(TRIES):
        path = folder / manifest.name
        if path.is_file():
            return manifest, path
        with transaction.atomic():
            # Whoever changes rows raises the revision in the same transaction: an equal one before
            # and after means that nothing changed between. The last try keeps writers out.
            manifest = _state(manifest.team, manifest.domain, lock=attempt == TRIES - 1)
            written = _written(manifest, folder)
            if _state(manifest.team, manifest.domain).etag == manifest.etag:
                written.replace(folder / manifest.name)
                break
            written.unlink()
    _forget_old(folder, manifest.name.partition("-")[0])
    return manifest, folder / manifest.name


def _written(manifest: Manifest, folder: Path) -> Path:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=folder, prefix=".new-")
    try:
        with os.fdopen(handle, "wb") as file:
            manifest_write(manifest, file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return Path(name)


def manifest_write(manifest: Manifest, file: IO[bytes]) -> None:
    """Write the compressed document, task by task; equal rows make equal bytes."""
    with gzip.GzipFile(fileobj=file, mode="wb", compresslevel=5, mtime=0) as packed:
        head = {"schema": SCHEMA, "generated_at": manifest.changed_at.isoformat()}
        packed.write(_json(head)[:-1] + b',"environments":[')
        for index, version in enumerate(_versions(manifest)):
            packed.write((b"," if index else b"") + _json(_entry(version))[:-1] + b',"tasks":[')
            tasks = (
                Task.objects.filter(version_id=version.pk, admitted=True)
                .exclude(role=TaskRole.GATE)
                .order_by("position")
                .values_list("task_id", "digest", "role")
            )
            for place, (task_id, digest, role) in enumerate(tasks.iterator(5000)):
                row = {"id": task_id, "digest": digest, "role": role}
                packed.write((b"," if place else b"") + _json(row))
            packed.write(b"]}")
        packed.write(b"]}\n")


def _versions(manifest: Manifest) -> list[EnvironmentVersion]:
    """Return the newest version of every environment of which something is admitted."""
    usable = Task.objects.filter(version=OuterRef("pk"), admitted=True).exclude(role=TaskRole.GATE)
    rows = EnvironmentVersion.objects.filter(
        Q(admission=Admission.ADMITTED) | Q(admission=Admission.PARTIAL),
        Exists(usable),
        environment__team=manifest.team,
    )
    if manifest.domain is not None:
        rows = rows.filter(environment__domain=manifest.domain)
    return sorted(
        rows.select_related("environment__domain")
        .order_by("environment_id", "-pk")
        .distinct("environment_id"),
        key=lambda version: (version.environment.domain.slug, version.environment.slug),
    )


def _entry(version: EnvironmentVersion) -> dict[str, Any]:
    decided = (
        Inspection.objects.filter(version=version, status=InspectionStatus.FINISHED, decides=True)
        .order_by("-pk")
        .values_list("public_id", "provisional")
        .first()
    )
    inspection, provisional = decided or ("", False)
    return {
        "environment": version.environment.slug,
        "domain": version.environment.domain.slug,
        "environment_id": version.environment.public_id,
        "version": version.public_id,
        "digest": version.digest,
        "admission": version.admission,
        "provisional": provisional,
        "inspection": inspection or None,
    }


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":")).encode()


def _forget_old(folder: Path, place: str) -> None:
    files = sorted(folder.glob(f"{place}-*.json.gz"), key=lambda path: path.stat().st_mtime_ns)
    for path in files[:-KEPT]:
        path.unlink(missing_ok=True)
