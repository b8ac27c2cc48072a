"""Writes of this app."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import IntegrityError, connection, transaction
from django.db.models import Case, CharField, Value, When
from django.utils.text import slugify

from qualityhub.engine.environments.placement import placement_of
from qualityhub.engine.errors import ConflictError, InvalidInputError, LimitExceededError
from qualityhub.platform.audit import audit
from qualityhub.platform.blobs import Blob, blob_store
from qualityhub.platform.text import storable, storable_json
from qualityhub.registry.choices import SourceKind, TaskRole
from qualityhub.registry.models import (
    Domain,
    Environment,
    EnvironmentVersion,
    Task,
    TaskRoleRule,
)
from qualityhub.registry.packages import keep_tree, read_reference, store_parsed, unpacked
from qualityhub.registry.placements import placement_correct

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from django.db import models

    from qualityhub.accounts.models import Team, User
    from qualityhub.engine.environments import model as engine


@dataclass(frozen=True, slots=True)
class Registered:
    """A version, and whether this call made it.

    Attributes:
        version: The version of that digest.
        created: False where the environment had it already.
    """

    version: EnvironmentVersion
    created: bool


def domain_create(
    *, team: Team, name: str, slug: str = "", description: str = "", actor: str
) -> Domain:
    """Create a domain.

    Raises:
        InvalidInputError: No usable name or slug.
        ConflictError: The team has that slug already.
    """
    domain = Domain(team=team, name=name.strip(), slug=slug or _slug(name), description=description)
    _valid(domain, "domain")
    try:
        with transaction.atomic():
            domain.save()
            _audit(actor, "domain.created", team, domain.public_id, domain.slug)
    except IntegrityError as error:
        raise ConflictError("domain.exists", f"A domain {domain.slug!r} exists already.") from error
    return domain


def domain_ensure(*, team: Team, slug: str, name: str = "", actor: str) -> Domain:
    """Return the team's domain of that slug, made where it is missing."""
    rows = Domain.objects.filter(team=team, slug=slug)
    found = rows.first()
    if found is not None:
        return found
    try:
        return domain_create(team=team, slug=slug, name=name or slug, actor=actor)
    except ConflictError:  # Somebody else made it a moment ago.
        return rows.get()


def environment_create(
    *,
    domain: Domain,
    name: str,
    slug: str = "",
    description: str = "",
    owners: Sequence[User] = (),
    actor: str,
) -> Environment:
    """Create an environment in a domain.

    Raises:
        InvalidInputError: No usable name or slug.
        ConflictError: The domain has that slug already.
    """
    environment = Environment(
        team=domain.team,
        domain=domain,
        name=name.strip(),
        slug=slug or _slug(name),
        description=description,
    )
    _valid(environment, "environment")
    try:
        with transaction.atomic():
            environment.save()
            environment.owners.set(owners)
            _audit(
                actor, "environment.created", domain.team, environment.public_id, str(environment)
            )
    except IntegrityError as error:
        raise ConflictError(
            "environment.exists",
            f"The domain {domain.slug} has an environment {environment.slug!r} already.",
        ) from error
    return environment


def environment_ensure(*, domain: Domain, slug: str, name: str = "", actor: str) -> Environment:
    """Return the domain's environment of that slug, made where it is missing."""
    rows = Environment.objects.filter(domain=domain, slug=slug)
    found = rows.first()
    if found is not None:
        return found
    try:
        return environment_create(domain=domain, slug=slug, name=name or slug, actor=actor)
    except ConflictError:  # Somebody else made it a moment ago.
        return rows.get()


def environment_update(environment: Environment, changes: Mapping[str, str], *, actor: str) -> None:
    """Change name or description.

    Raises:
        InvalidInputError: A value that does not fit.
    """
    changed = {key: value for key, value in changes.items() if getattr(environment, key) != value}
    if not changed:
        return
    before = {key: getattr(environment, key) for key in changed}
    for key, value in changed.items():
        setattr(environment, key, value)
    _valid(environment, "environment")
    with transaction.atomic():
        environment.save(update_fields=list(changed))
        audit(
            actor=actor,
            action="environment.changed",
            team=environment.team.public_id,
            object_id=environment.public_id,
            object_text=str(environment),
            before=before,
            after=changed,
        )


def version_register(
    *,
    environment: Environment,
    actor: str,
    archive: BinaryIO | None = None,
    filename: str = "",
    source: str = "",
    adapter: str | None = None,
    entry: str = "",
) -> Registered:
    """Read an archive or a reference and keep it as a version; the same digest is the same version.

    Nothing of the package runs. Files come first, rows after them in one transaction: a failure
    leaves no row behind.

    Args:
        environment: What it is a version of.
        actor: Who uploads, as text.
        archive: A zip or tar archive, seekable.
        filename: Its name, for people.
        source: Instead of an archive: ``gymnasium:ID`` and the like.
        adapter: Format to read it as; None detects it.
        entry: File or ``file.py:ClassName`` within the archive.

    Raises:
        UnreadablePackageError: The archive is unsafe or no environment.
        InvalidInputError: Both or neither of archive and source, or a bad entry.
        LimitExceededError: Larger than this installation accepts.
    """
    if (archive is None) == (not source):
        raise InvalidInputError(
            "input.archive_or_source", "Give either an archive or a source.", "One of the two."
        )
    domain = environment.domain.slug
    if archive is None:
        parsed = read_reference(source, name=environment.slug, domain=domain)
        return _store(environment, actor, parsed, source=source)
    _check_size(archive)
    with unpacked(
        archive, name=environment.slug, adapter=adapter, entry=entry, domain=domain
    ) as package:
        known = _find(environment, package.environment.digest)
        if known is not None:
            return _known(known, package.environment, actor)
        archive.seek(0)
        blob = blob_store().put(archive, max_bytes=settings.QH_MAX_UPLOAD_BYTES)
        keep_tree(package.folder, blob.sha256)
        return _store(
            environment,
            actor,
            package.environment,
            source=filename or "archive",
            blob=blob,
            root_path=package.root_path,
        )


def task_roles_set(environment: Environment, roles: Mapping[str, TaskRole], *, actor: str) -> None:
    """Say what tasks may be used for, in all versions so far and to come."""
    with transaction.atomic():
        TaskRoleRule.objects.bulk_create(
            [
                TaskRoleRule(environment=environment, task_id=task_id, role=role)
                for task_id, role in roles.items()
            ],
            update_conflicts=True,
            unique_fields=["environment", "task_id"],
            update_fields=["role"],
        )
        # One statement: rows are locked once, in one order, whatever an inspection writes beside.
        Task.objects.filter(version__environment=environment, task_id__in=list(roles)).update(
            role=Case(
                *(
                    When(
                        task_id__in=[task for task, wanted in roles.items() if wanted == role],
                        then=Value(role),
                    )
                    for role in set(roles.values())
                ),
                output_field=CharField(),
            )
        )
        audit(
            actor=actor,
            action="task_roles.set",
            team=environment.team.public_id,
            object_id=environment.public_id,
            object_text=str(environment),
            after=dict(roles),
        )


def _store(
    environment: Environment,
    actor: str,
    parsed: engine.Environment,
    *,
    source: str,
    blob: Blob | None = None,
    root_path: str = "",
) -> Registered:
    known = _find(environment, parsed.digest)
    if known is not None:
        return _known(known, parsed, actor)
    parsed_sha256 = store_parsed(parsed)
    try:
        with transaction.atomic():
            version = EnvironmentVersion.objects.create(
                environment=environment,
                digest=parsed.digest,
                adapter=parsed.adapter,
                family=parsed.family,
                task_count=len(parsed.tasks),
                parsed_sha256=parsed_sha256,
                root_path=root_path,
                source_kind=SourceKind.ARCHIVE if blob else SourceKind.REFERENCE,
                source=storable(source)[:500],
                archive_sha256=blob.sha256 if blob else "",
                archive_bytes=blob.size if blob else 0,
                placement=storable_json(placement_of(parsed)),
                placed=True,
                created_by=actor[:300],
            )
            _store_tasks(version, parsed)
            audit(
                actor=actor,
                action="version.registered",
                team=environment.team.public_id,
                object_id=version.public_id,
                object_text=str(environment),
                after={"digest": parsed.digest, "source": version.source},
            )
    except IntegrityError:
        known = _find(environment, parsed.digest)
        if known is None:
            raise
        return _known(known, parsed, actor)
    return Registered(version, created=True)


def _known(version: EnvironmentVersion, parsed: engine.Environment, actor: str) -> Registered:
    placement_correct(version, parsed, actor=actor)
    return Registered(version, created=False)


def _store_tasks(version: EnvironmentVersion, parsed: engine.Environment) -> None:
    rules = TaskRoleRule.objects.filter(environment_id=version.environment_id)
    roles = dict(rules.values_list("task_id", "role"))
    # COPY: 20,000 tasks by INSERT take as long as reading them did, several seconds.
    with (
        connection.cursor() as cursor,
        cursor.copy(
            "COPY registry_task (version_id, task_id, position, digest, layers, role) FROM STDIN"
        ) as copy,
    ):
        for position, task in enumerate(parsed.tasks):
            task_id = storable(task.id)
            role = roles.get(task_id, TaskRole.TRAIN)
            layers = json.dumps(dict(task.layers))
            copy.write_row((version.pk, task_id, position, task.digest, layers, str(role)))


def _find(environment: Environment, digest: str) -> EnvironmentVersion | None:
    return (
        EnvironmentVersion.objects.select_related("environment")
        .filter(environment=environment, digest=digest)
        .first()
    )


def _check_size(archive: BinaryIO) -> None:
    size = archive.seek(0, 2)
    archive.seek(0)
    if size > settings.QH_MAX_UPLOAD_BYTES:
        raise LimitExceededError(
            "input.too_large",
            f"The archive has {size} bytes; {settings.QH_MAX_UPLOAD_BYTES} are accepted.",
            "Leave out what the environment does not need.",
        )


def _slug(name: str) -> str:
    return slugify(name)[:63].strip("-_").replace("_", "-")


def _valid(row: models.Model, what: str) -> None:
    try:
        row.clean_fields(exclude=["public_id", "team", "domain"])
    except ValidationError as error:
        field, messages = next(iter(error.message_dict.items()))
        raise InvalidInputError(f"{what}.invalid", f"{field}: {messages[0]}") from error


def _audit(actor: str, action: str, team: Team, object_id: str, text: str) -> None:
    audit(actor=actor, action=action, team=team.public_id, object_id=object_id, object_text=text)
