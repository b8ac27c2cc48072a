"""Domains, environments, their versions and tasks."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models.functions import Now

from qualityhub.accounts.models import Team, User, slug_shape
from qualityhub.platform.ids import PublicIdModel
from qualityhub.registry.choices import Admission, SourceKind, TaskRole


class Domain(PublicIdModel):
    """A field of skills that is trained, admitted and gated for itself."""

    PREFIX: ClassVar[str] = "dom"

    team = models.ForeignKey(Team, models.CASCADE, related_name="domains")
    slug = models.CharField(max_length=63, validators=[slug_shape])
    name = models.CharField(max_length=100)
    description = models.TextField(blank=True)
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        """One slug per team."""

        constraints = (models.UniqueConstraint(fields=["team", "slug"], name="domain_team_slug"),)

    def __str__(self) -> str:
        return str(self.slug)


class Environment(PublicIdModel):
    """One environment through all its versions."""

    PREFIX: ClassVar[str] = "env"

    team = models.ForeignKey(Team, models.CASCADE, related_name="environments")
    domain = models.ForeignKey(Domain, models.PROTECT, related_name="environments")
    slug = models.CharField(max_length=63, validators=[slug_shape])
    name = models.CharField(max_length=200)
    description = models.TextField(blank=True)
    owners = models.ManyToManyField(User, related_name="owned_environments", blank=True)
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        """One slug per domain of a team."""

        constraints = (
            models.UniqueConstraint(
                fields=["team", "domain", "slug"], name="environment_team_domain_slug"
            ),
        )
        indexes = (models.Index(fields=["team", "-id"], name="environment_team"),)

    def __str__(self) -> str:
        return f"{self.domain.slug}/{self.slug}"


class EnvironmentVersion(PublicIdModel):
    """One immutable state of an environment, named by its digest.

    Later only ``admission`` and ``admission_changed_at`` change, which the inspections write, and
    where it may run: labels are no part of the digest, so that they can be corrected.
    """

    PREFIX: ClassVar[str] = "ver"

    environment = models.ForeignKey(Environment, models.CASCADE, related_name="versions")
    digest = models.CharField(max_length=80)
    adapter = models.CharField(max_length=60)
    family = models.CharField(max_length=20)
    task_count = models.PositiveIntegerField()
    parsed_sha256 = models.CharField(
        max_length=64,
        blank=True,
        help_text="Blob of the parsed environment; rows may hold text that PostgreSQL cannot.",
    )
    root_path = models.CharField(
        max_length=500, blank=True, help_text="Folder within the archive that is the environment."
    )
    source_kind = models.CharField(max_length=10, choices=SourceKind.choices)
    source = models.CharField(max_length=500, help_text="Archive's file name, or the reference.")
    archive_sha256 = models.CharField(max_length=64, blank=True)
    archive_bytes = models.PositiveBigIntegerField(default=0)
    placement = models.JSONField(
        default=dict, help_text="What it asks of the host that prepares and runs it."
    )
    placed = models.BooleanField(
        default=False,
        db_default=False,
        help_text="Placement was read from its files; else it is unknown where it is empty.",
    )
    created_by = models.CharField(max_length=300)
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    admission = models.CharField(  # noqa: DJ001 - null is "no inspection has ended yet".
        max_length=12, choices=Admission.choices, null=True, blank=True
    )
    admission_changed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        """The same content is the same version."""

        constraints = (
            models.UniqueConstraint(
                fields=["environment", "digest"], name="version_environment_digest"
            ),
            models.CheckConstraint(
                condition=models.Q(source_kind="reference") ^ ~models.Q(archive_sha256=""),
                name="version_archive_or_reference",
            ),
        )
        indexes = (
            models.Index(fields=["digest"], name="version_digest"),
            models.Index(fields=["environment", "-id"], name="version_environment"),
        )

    def __str__(self) -> str:
        return f"{self.environment} {self.digest[:16]}"


class Task(models.Model):
    """One task of one version."""

    version = models.ForeignKey(EnvironmentVersion, models.CASCADE, related_name="tasks")
    task_id = models.CharField(max_length=512)
    position = models.PositiveIntegerField()
    digest = models.CharField(max_length=80)
    layers = models.JSONField()
    role = models.CharField(max_length=5, choices=TaskRole.choices, default=TaskRole.TRAIN.value)
    admitted = models.BooleanField(null=True, blank=True, help_text="Null: not judged yet.")

    class Meta:
        """Task ids are unique within a version."""

        constraints = (
            models.UniqueConstraint(fields=["version", "task_id"], name="task_version_task_id"),
        )
        indexes = (
            models.Index(fields=["digest"], name="task_digest"),
            models.Index(fields=["version", "position"], name="task_position"),
        )

    def __str__(self) -> str:
        return str(self.task_id)


class TaskRoleRule(models.Model):
    """A role given to a task of an environment, kept for its later versions.

    The digest is not part of it: a reworded task stays a gate task.
    """

    environment = models.ForeignKey(Environment, models.CASCADE, related_name="task_roles")
    task_id = models.CharField(max_length=512)
    role = models.CharField(max_length=5, choices=TaskRole.choices)

    class Meta:
        """One role per task."""

        constraints = (
            models.UniqueConstraint(
                fields=["environment", "task_id"], name="task_role_environment_task"
            ),
        )

    def __str__(self) -> str:
        return f"{self.task_id}: {self.role}"
