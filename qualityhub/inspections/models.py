"""Inspections, their units of work, results of trials, findings, waivers, policies, audits."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models.functions import Now

from qualityhub.accounts.models import Team
from qualityhub.inspections.choices import (
    AuditStatus,
    AuditTrigger,
    BatchKind,
    BatchStatus,
    InspectionStatus,
    Priority,
    Trigger,
)
from qualityhub.inspections.fields import PackedJSONField
from qualityhub.inspections.fleet import DomainTurn, Need, Share, Worker
from qualityhub.platform.ids import PublicIdModel
from qualityhub.platform.jobs import Job
from qualityhub.registry.models import Domain, Environment, EnvironmentVersion

__all__ = [
    "AdmissionPolicyVersion",
    "AdmissionRevision",
    "AuditRun",
    "Batch",
    "DomainTurn",
    "Finding",
    "Inspection",
    "InspectionTrial",
    "Need",
    "Share",
    "TrialRecord",
    "Waiver",
    "Worker",
]


class AdmissionPolicyVersion(PublicIdModel):
    """One version of a domain's admission policy; the newest is in force, none is ever edited."""

    PREFIX: ClassVar[str] = "apol"

    domain = models.ForeignKey(Domain, models.CASCADE, related_name="admission_policies")
    number = models.PositiveIntegerField()
    document = models.JSONField(help_text="The [admission] table.")
    digest = models.CharField(max_length=80)
    created_by = models.CharField(max_length=300)
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        """Versions are numbered from 1 within their domain."""

        constraints = (
            models.UniqueConstraint(fields=["domain", "number"], name="policy_domain_number"),
        )

    def __str__(self) -> str:
        return f"{self.domain} {self.number}"


class AuditRun(PublicIdModel):
    """One audit of a team's admitted versions."""

    PREFIX: ClassVar[str] = "audit"

    team = models.ForeignKey(Team, models.CASCADE, related_name="audit_runs")
    trigger = models.CharField(max_length=10, choices=AuditTrigger.choices)
    status = models.CharField(
        max_length=10, choices=AuditStatus.choices, default=AuditStatus.RUNNING.value
    )
    actor = models.CharField(max_length=300)
    considered = models.PositiveIntegerField(default=0)
    started = models.PositiveIntegerField(default=0)
    remaining = models.PositiveIntegerField(default=0)
    changes = models.JSONField(default=list, help_text="What the inspections found changed.")
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        """Listed by team."""

        indexes = (models.Index(fields=["team", "-id"], name="audit_run_team"),)


class Inspection(PublicIdModel):
    """One inspection of one version, under one policy, on one generation of trials."""

    PREFIX: ClassVar[str] = "insp"

    team = models.ForeignKey(Team, models.CASCADE, related_name="inspections")
    version = models.ForeignKey(EnvironmentVersion, models.CASCADE, related_name="inspections")
    domain = models.ForeignKey(Domain, models.CASCADE, related_name="+")
    job = models.OneToOneField(Job, models.RESTRICT, related_name="inspection")
    audit_run = models.ForeignKey(
        AuditRun, models.SET_NULL, null=True, blank=True, related_name="inspections"
    )
    audit_reason = models.CharField(max_length=200, blank=True)
    policy = models.JSONField(help_text="The [admission] table in force.")
    policy_version = models.CharField(max_length=80)
    effort = models.CharField(max_length=10)
    decides = models.BooleanField(
        default=True,
        help_text="May change what is admitted: the domain's own policy, no less effort.",
    )
    generation = models.PositiveIntegerField(default=0)
    trigger = models.CharField(max_length=10, choices=Trigger.choices)
    priority = models.PositiveSmallIntegerField(choices=Priority.choices)
    actor = models.CharField(max_length=300)
    status = models.CharField(
        max_length=10, choices=InspectionStatus.choices, default=InspectionStatus.QUEUED.value
    )
    round = models.PositiveIntegerField(default=0)
    open_batches = models.PositiveIntegerField(default=0)
    refused = models.JSONField(
        default=dict, help_text="Sessions of workers that could not do it, and why."
    )
    waits_for = models.CharField(
        max_length=500,
        blank=True,
        help_text="Why nobody goes on with it; empty while somebody can.",
    )
    waits_since = models.DateTimeField(null=True, blank=True)
    engine_asked = models.BooleanField(
        default=False,
        db_default=False,
        help_text="Its preparation asked for a container engine, whatever that came to.",
    )
    worlds = PackedJSONField(null=True, blank=True)
    inputs = PackedJSONField(
        null=True, blank=True, help_text="What the verdict was made from, beside the trials."
    )
    facts = models.CharField(
        max_length=80, blank=True, help_text="Digest of rule versions, programs and host class."
    )
    verdict = models.CharField(max_length=10, blank=True)
    provisional = models.BooleanField(default=False)
    report = PackedJSONField(null=True, blank=True)
    finding_counts = models.JSONField(default=dict, help_text="By severity, and those waived.")
    task_counts = models.JSONField(default=dict, help_text="By verdict.")
    asks_total = models.PositiveIntegerField(default=0)
    trials_total = models.PositiveIntegerField(default=0)
    trials_done = models.PositiveIntegerField(default=0)
    trials_cached = models.PositiveIntegerField(default=0)
    trials_let_go_at = models.DateTimeField(
        null=True,
        blank=True,
        help_text="When the trials behind it were let go, but for those that findings name.",
    )
    error_code = models.CharField(max_length=100, blank=True)
    error_message = models.TextField(blank=True)
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        """Lists by team and version; the newest that ended decides about admission."""

        indexes = (
            models.Index(fields=["team", "-id"], name="inspection_team"),
            models.Index(fields=["version", "-id"], name="inspection_version"),
            models.Index(
                fields=["domain", "id"],
                name="inspection_open",
                condition=models.Q(status__in=["queued", "preparing", "running"]),
            ),
        )
        constraints = (
            models.CheckConstraint(
                condition=models.Q(status="finished") ^ models.Q(verdict=""),
                name="inspection_verdict_when_finished",
            ),
        )


class Batch(models.Model):
    """One unit of work: a few seconds of trials, or the step before or between rounds of them.

    Whoever holds ``lease_token`` may store what it did; a token that is gone stores nothing.
    """

    inspection = models.ForeignKey(Inspection, models.CASCADE, related_name="batches")
    domain = models.ForeignKey(Domain, models.CASCADE, related_name="+", db_index=False)
    priority = models.PositiveSmallIntegerField(choices=Priority.choices)
    kind = models.CharField(max_length=8, choices=BatchKind.choices)
    round = models.PositiveIntegerField()
    ordinal = models.PositiveIntegerField(default=0)
    trials = PackedJSONField(null=True, blank=True, help_text="Dropped once they are done.")
    trial_count = models.PositiveIntegerField(default=0)
    needs = models.BigIntegerField(
        default=0, help_text="Row of what its worker must have; 0: any worker will do."
    )
    status = models.CharField(
        max_length=8, choices=BatchStatus.choices, default=BatchStatus.QUEUED.value
    )
    attempts = models.PositiveIntegerField(default=0)
    lease_token = models.UUIDField(null=True, blank=True)
    lease_until = models.DateTimeField(null=True, blank=True)
    worker = models.CharField(max_length=200, blank=True)
    last_error = models.TextField(blank=True)
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    ready_at = models.DateTimeField(
        db_default=Now(), help_text="Not before; a failed attempt is not repeated at once."
    )
    leased_at = models.DateTimeField(null=True, blank=True)
    done_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        """What waits is found by domain and class; a step of a round exists once."""

        constraints = (
            models.UniqueConstraint(
                fields=["inspection", "kind", "round", "ordinal"], name="batch_once"
            ),
            models.CheckConstraint(
                condition=models.Q(status="leased") ^ models.Q(lease_token__isnull=True),
                name="batch_leased_with_token",
            ),
        )
        indexes = (
            models.Index(
                fields=["priority", "domain", "needs", "id"],
                name="batch_queue",
                condition=models.Q(status="queued"),
            ),
            models.Index(
                fields=["lease_until"], name="batch_leased", condition=models.Q(status="leased")
            ),
            models.Index(
                fields=["done_at"], name="batch_done_at", condition=models.Q(status="done")
            ),
        )

    def __str__(self) -> str:
        return f"{self.inspection} {self.kind} {self.round}.{self.ordinal}"


class TrialRecord(models.Model):
    """The result of one trial, kept for every later inspection of the team."""

    team = models.ForeignKey(Team, models.CASCADE, related_name="+", db_index=False)
    key = models.CharField(max_length=80)
    result = PackedJSONField()
    seal = models.CharField(max_length=64, help_text="sha256 of the result's canonical text.")
    seconds = models.FloatField()
    evidence = models.CharField(
        max_length=64,
        blank=True,
        default="",
        db_default="",
        help_text="Blob with all outputs, as the result says; for the sweep.",
    )
    batch = models.ForeignKey(
        Batch, models.SET_NULL, null=True, blank=True, related_name="+", db_index=False
    )
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        """Teams do not see each other's results, not even by guessing a key."""

        constraints = (models.UniqueConstraint(fields=["team", "key"], name="trial_team_key"),)
        indexes = (
            models.Index(
                fields=["evidence"], name="trial_evidence", condition=~models.Q(evidence="")
            ),
            models.Index(fields=["created_at"], name="trial_created_at"),
        )

    def __str__(self) -> str:
        return str(self.key)


class InspectionTrial(models.Model):
    """What one trial means to one inspection: which asks it answers.

    A failure of our own machinery is kept here alone: no other inspection may read it.
    """

    inspection = models.ForeignKey(
        Inspection, models.CASCADE, related_name="trials", db_index=False
    )
    key = models.CharField(max_length=80)
    record = models.ForeignKey(
        TrialRecord, models.RESTRICT, null=True, blank=True, related_name="+"
    )
    asks = PackedJSONField()
    failure = PackedJSONField(null=True, blank=True)
    cached = models.BooleanField(default=False)

    class Meta:
        """A trial counts once per inspection."""

        constraints = (
            models.UniqueConstraint(fields=["inspection", "key"], name="inspection_trial_once"),
            models.CheckConstraint(
                condition=models.Q(record__isnull=True) ^ models.Q(failure__isnull=True),
                name="inspection_trial_record_or_failure",
            ),
        )

    def __str__(self) -> str:
        return f"{self.inspection} {self.key}"


class Finding(models.Model):
    """One finding of a finished inspection, for lists and filters; the report has the original."""

    inspection = models.ForeignKey(Inspection, models.CASCADE, related_name="findings")
    position = models.PositiveIntegerField()
    finding_id = models.CharField(max_length=20)
    fingerprint = models.CharField(max_length=80)
    code = models.CharField(max_length=20)
    rule_version = models.PositiveIntegerField()
    kind = models.CharField(max_length=10)
    severity = models.CharField(max_length=10)
    waived = models.BooleanField()
    task = models.CharField(max_length=512, blank=True)
    title = models.CharField(max_length=200, blank=True)
    message = models.TextField()
    fix = models.TextField(blank=True)
    location = models.TextField(blank=True)
    evidence = models.JSONField(default=dict)

    class Meta:
        """One row per fingerprint of an inspection, in the report's order."""

        constraints = (
            models.UniqueConstraint(
                fields=["inspection", "fingerprint"], name="finding_fingerprint"
            ),
        )
        indexes = (
            models.Index(fields=["inspection", "position"], name="finding_order"),
            models.Index(fields=["code", "severity"], name="finding_code"),
        )

    def __str__(self) -> str:
        return f"{self.code} {self.finding_id}"


class Waiver(PublicIdModel):
    """A granted exception for an environment; it expires, and never reads as a pass."""

    PREFIX: ClassVar[str] = "waiv"

    environment = models.ForeignKey(Environment, models.CASCADE, related_name="waivers")
    code = models.CharField(max_length=20)
    task = models.CharField(max_length=512, blank=True, help_text="Empty: every task.")
    reason = models.TextField()
    until = models.DateField(help_text="Last day on which it holds, UTC.")
    granted_by = models.CharField(max_length=300)
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    revoked_at = models.DateTimeField(null=True, blank=True)
    revoked_by = models.CharField(max_length=300, blank=True)

    class Meta:
        """One waiver in force per rule and task."""

        constraints = (
            models.UniqueConstraint(
                fields=["environment", "code", "task"],
                name="waiver_active",
                condition=models.Q(revoked_at__isnull=True),
            ),
        )


class AdmissionRevision(models.Model):
    """Counts changes of what a team's training may use; triggers raise it, whoever writes."""

    team = models.OneToOneField(Team, models.CASCADE, primary_key=True, related_name="+")
    revision = models.PositiveBigIntegerField(default=0)
    changed_at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return f"{self.team}: {self.revision}"
