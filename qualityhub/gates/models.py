"""Checkpoints, evaluation runs, rollouts and gates as rows.

Rollouts are the many: their table is keyed by whole numbers, hash-partitioned by run, and has no
database foreign keys, because checking one per row would cost more than storing it; rows are only
written by :mod:`qualityhub.gates.services.ingest`, which has just resolved both ends.
"""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models.functions import Now

from qualityhub.gates.choices import BaselineKind, GateStatus, RunStatus, Validity, Verdict
from qualityhub.platform.ids import PublicIdModel

NAME_LENGTH = 200
TASK_LENGTH = 512
TASK_DIGEST_LENGTH = 256
DIGEST_LENGTH = 100
ACTOR_LENGTH = 300


class Checkpoint(PublicIdModel):
    """One state of a model, named by its team."""

    PREFIX: ClassVar[str] = "ckpt"

    team = models.ForeignKey(
        "accounts.Team", on_delete=models.CASCADE, db_index=False, related_name="checkpoints"
    )
    name = models.CharField(max_length=NAME_LENGTH)
    lineage = models.CharField(max_length=NAME_LENGTH, blank=True)
    variant = models.CharField(max_length=NAME_LENGTH, blank=True)
    parent = models.ForeignKey(
        "self", on_delete=models.SET_NULL, null=True, blank=True, related_name="children"
    )
    attributes = models.JSONField(default=dict, blank=True)
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        """One name per team."""

        constraints = (
            models.UniqueConstraint(fields=("team", "name"), name="gates_checkpoint_team_name"),
        )
        indexes = (models.Index(fields=("team", "-id"), name="gates_checkpoint_recent"),)

    def __str__(self) -> str:
        return self.name


class EvalRun(PublicIdModel):
    """One evaluation of one checkpoint; holds rollouts until it is sealed.

    ``rows``, ``duplicates`` and ``conflicts`` change in the transaction that stores the rows.
    """

    PREFIX: ClassVar[str] = "run"

    # No index of its own: the unique constraint begins with it.
    checkpoint = models.ForeignKey(
        Checkpoint, on_delete=models.CASCADE, db_index=False, related_name="runs"
    )
    name = models.CharField(max_length=NAME_LENGTH)
    domain = models.ForeignKey(
        "registry.Domain",
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
        help_text="Domain of rows that name none.",
    )
    harness = models.JSONField(default=dict, blank=True)
    sampling = models.JSONField(default=dict, blank=True)
    status = models.CharField(max_length=10, choices=RunStatus.choices, default=RunStatus.OPEN)
    rows = models.BigIntegerField(default=0)
    duplicates = models.BigIntegerField(default=0)
    conflicts = models.BigIntegerField(default=0)
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    sealed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        """One name per checkpoint."""

        constraints = (
            models.UniqueConstraint(
                fields=("checkpoint", "name"), name="gates_run_checkpoint_name"
            ),
        )

    def __str__(self) -> str:
        return self.name


class TaskKey(models.Model):
    """A task as evaluations name it, interned: domain, task text, digest (empty where not given).

    Two digests of one task are two keys, so that equal keys are exactly what may be paired.
    """

    domain = models.ForeignKey(
        "registry.Domain", on_delete=models.PROTECT, db_index=False, related_name="+"
    )
    task = models.CharField(max_length=TASK_LENGTH)
    digest = models.CharField(max_length=TASK_DIGEST_LENGTH, blank=True, default="")

    class Meta:
        """Interning needs exactly one row per text."""

        constraints = (
            models.UniqueConstraint(
                fields=("domain", "task", "digest"), name="gates_taskkey_domain_task_digest"
            ),
        )

    def __str__(self) -> str:
        return self.task


class Rollout(models.Model):
    """One attempt at one task; identity is (run, task, attempt), the first content wins."""

    pk = models.CompositePrimaryKey("run_id", "task_key_id", "attempt")
    run = models.ForeignKey(
        EvalRun, on_delete=models.CASCADE, db_constraint=False, db_index=False, related_name="+"
    )
    task_key = models.ForeignKey(
        TaskKey, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+"
    )
    attempt = models.IntegerField()
    content = models.BigIntegerField(help_text="First 64 bits of the digest of the row's content.")
    validity = models.SmallIntegerField(choices=Validity.choices)
    passed = models.BooleanField()
    reward = models.FloatField()
    latency_ms = models.FloatField(null=True)
    input_tokens = models.BigIntegerField(null=True)
    output_tokens = models.BigIntegerField(null=True)
    cost = models.FloatField(null=True)
    turns = models.BigIntegerField(null=True)
    context_tokens = models.BigIntegerField(null=True)
    trace_ref = models.TextField(null=True)  # noqa: DJ001 - most rows have none; NULL is free.
    attributes = models.JSONField(null=True)

    class Meta:
        """The table itself, with its partitions, is made by the migration's SQL."""

    def __str__(self) -> str:
        return f"{self.run_id}/{self.task_key_id}/{self.attempt}"


class Rollup(models.Model):
    """Sums over the rollouts of one run, task and validity; what gates read.

    Kept in the transaction that stores the rows and equal to their recomputation
    (:func:`qualityhub.gates.services.rollups_verify`). Sums of counts are floating point: exact up
    to 2**53, and no sum of accepted rows can overflow them.
    """

    pk = models.CompositePrimaryKey("run_id", "task_key_id", "validity")
    run = models.ForeignKey(
        EvalRun, on_delete=models.CASCADE, db_index=False, related_name="rollups"
    )
    task_key = models.ForeignKey(
        TaskKey, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+"
    )
    validity = models.SmallIntegerField(choices=Validity.choices)
    n = models.IntegerField()
    passes = models.IntegerField()
    reward_sum = models.FloatField()
    reward_sumsq = models.FloatField()
    input_tokens = models.FloatField()
    input_tokens_n = models.IntegerField()
    output_tokens = models.FloatField()
    output_tokens_n = models.IntegerField()
    cost = models.FloatField()
    cost_n = models.IntegerField()
    latency_ms = models.FloatField()
    latency_ms_n = models.IntegerField()
    turns = models.FloatField()
    turns_n = models.IntegerField()
    trace_ref = models.TextField(null=True)  # noqa: DJ001 - NULL is what LEAST() skips.

    def __str__(self) -> str:
        return f"{self.run_id}/{self.task_key_id}/{self.validity}"


class GatePolicy(PublicIdModel):
    """One version of a named gate policy. Versions are never edited; a change is a new one."""

    PREFIX: ClassVar[str] = "pol"

    team = models.ForeignKey(
        "accounts.Team", on_delete=models.CASCADE, db_index=False, related_name="+"
    )
    name = models.CharField(max_length=NAME_LENGTH)
    version = models.PositiveIntegerField()
    text = models.TextField(help_text="The TOML file as it was sent.")
    digest = models.CharField(max_length=DIGEST_LENGTH)
    retired = models.BooleanField(default=False)
    created_by = models.CharField(max_length=ACTOR_LENGTH, blank=True)
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        """Versions count up per name."""

        constraints = (
            models.UniqueConstraint(
                fields=("team", "name", "version"), name="gates_policy_team_name_version"
            ),
        )

    def __str__(self) -> str:
        return f"{self.name} v{self.version}"


class Gate(PublicIdModel):
    """One comparison of a candidate with a baseline, and its decision once made.

    A decision is written once, from sealed runs alone. ``policy`` is the policy's content,
    ``inputs`` the runs with their row counts, ``record`` the digest over those and the report,
    which itself names the digests of all rollups that were read.
    """

    PREFIX: ClassVar[str] = "gate"

    team = models.ForeignKey(
        "accounts.Team", on_delete=models.CASCADE, db_index=False, related_name="gates"
    )
    candidate = models.ForeignKey(Checkpoint, on_delete=models.PROTECT, related_name="gates")
    baseline = models.ForeignKey(Checkpoint, on_delete=models.PROTECT, related_name="+")
    candidate_runs = models.ManyToManyField(EvalRun, related_name="gates")
    baseline_runs = models.ManyToManyField(EvalRun, related_name="+")
    domain_baselines = models.JSONField(
        default=dict,
        blank=True,
        help_text="Public ids of runs by domain that has its own baseline.",
    )
    policy_row = models.ForeignKey(
        GatePolicy, on_delete=models.PROTECT, null=True, blank=True, related_name="gates"
    )
    policy = models.JSONField(default=dict)
    status = models.CharField(max_length=10, choices=GateStatus.choices, default=GateStatus.WAITING)
    verdict = models.CharField(max_length=20, choices=Verdict.choices, blank=True)
    report = models.JSONField(null=True)
    inputs = models.JSONField(default=dict)
    record = models.CharField(max_length=DIGEST_LENGTH, blank=True)
    error = models.JSONField(null=True)
    job_id = models.CharField(max_length=64, blank=True, help_text="Public id of the job.")
    created_by = models.CharField(max_length=ACTOR_LENGTH, blank=True)
    created_at = models.DateTimeField(db_default=Now(), editable=False)
    decided_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        """A decided gate has all of its decision."""

        indexes = (models.Index(fields=("team", "-id"), name="gates_gate_recent"),)
        constraints = (
            models.CheckConstraint(
                condition=~models.Q(status=GateStatus.DECIDED)
                | (
                    models.Q(report__isnull=False, decided_at__isnull=False)
                    & ~models.Q(verdict="")
                    & ~models.Q(record="")
                ),
                name="gates_gate_decided_is_whole",
            ),
        )

    def __str__(self) -> str:
        return self.public_id


class GateDomain(models.Model):
    """One domain of a decided gate, as a row: what lists and overviews read without the report."""

    gate = models.ForeignKey(Gate, on_delete=models.CASCADE, related_name="domains")
    domain = models.ForeignKey(
        "registry.Domain", on_delete=models.CASCADE, db_index=False, related_name="+"
    )
    verdict = models.CharField(max_length=20, choices=Verdict.choices)
    cause = models.CharField(max_length=40, blank=True)
    reason = models.TextField(blank=True)
    tier = models.CharField(max_length=20, blank=True)
    n_tasks = models.IntegerField()
    baseline_mean = models.FloatField(null=True)
    candidate_mean = models.FloatField(null=True)
    delta = models.FloatField(null=True)
    lower = models.FloatField(null=True)
    upper = models.FloatField(null=True)
    margin = models.FloatField(null=True)

    class Meta:
        """A domain appears once in a gate; the newest gate of a domain is one index step."""

        constraints = (
            models.UniqueConstraint(fields=("domain", "gate"), name="gates_gatedomain_once"),
        )

    def __str__(self) -> str:
        return f"{self.gate_id}/{self.domain_id}"


class Baseline(PublicIdModel):
    """What candidates are compared with; one active per team, domain (or none) and kind.

    Replaced, never edited: the old row stays with ``active`` false, as the record of what held.
    """

    PREFIX: ClassVar[str] = "base"

    team = models.ForeignKey("accounts.Team", on_delete=models.CASCADE, related_name="baselines")
    domain = models.ForeignKey(
        "registry.Domain", on_delete=models.CASCADE, null=True, blank=True, related_name="+"
    )
    kind = models.CharField(max_length=20, choices=BaselineKind.choices)
    checkpoint = models.ForeignKey(Checkpoint, on_delete=models.PROTECT, related_name="+")
    runs = models.ManyToManyField(EvalRun, related_name="+")
    reason = models.TextField(blank=True)
    active = models.BooleanField(default=True)
    set_by = models.CharField(max_length=ACTOR_LENGTH, blank=True)
    set_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        """Two constraints, since NULLs are distinct to PostgreSQL before 15."""

        constraints = (
            models.UniqueConstraint(
                fields=("team", "domain", "kind"),
                condition=models.Q(active=True, domain__isnull=False),
                name="gates_baseline_one_per_domain",
            ),
            models.UniqueConstraint(
                fields=("team", "kind"),
                condition=models.Q(active=True, domain__isnull=True),
                name="gates_baseline_one_overall",
            ),
        )

    def __str__(self) -> str:
        return self.public_id
