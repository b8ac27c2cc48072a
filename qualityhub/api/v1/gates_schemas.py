"""Shapes of what comes in and goes out around results and gates."""

from __future__ import annotations

import json
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from qualityhub.api.base import StrictSerializer
from qualityhub.api.v1.accounts import JobSerializer
from qualityhub.gates.choices import BaselineKind, GateStatus, RunStatus, Verdict
from qualityhub.gates.models import NAME_LENGTH

JSON_BYTES = 16 * 1024
MAX_RUNS = 50


class SmallObject(serializers.DictField):
    """A JSON object of at most 16 KiB that PostgreSQL can hold."""

    def to_internal_value(self, data: Any) -> dict[Any, Any]:
        """Check size and characters."""
        value: dict[Any, Any] = super().to_internal_value(data)
        try:
            text = json.dumps(value, ensure_ascii=False)
            size = len(text.encode())
        except (ValueError, RecursionError) as error:
            raise serializers.ValidationError("Not JSON that can be stored.") from error
        if "\\u0000" in text:
            raise serializers.ValidationError("Contains a NUL character.")
        if size > JSON_BYTES:
            raise serializers.ValidationError(f"Larger than {JSON_BYTES // 1024} KiB.")
        return value


class Refs(serializers.ListField):
    """One public id or a list of them."""

    child = serializers.CharField(max_length=100)

    def to_internal_value(self, data: Any) -> list[Any]:
        """Read a single id as a list of one."""
        return super().to_internal_value([data] if isinstance(data, str) else data)


@extend_schema_field(serializers.ListField(child=serializers.CharField()))
class PublicIds(serializers.Field[Any, Any, Any, Any]):
    """The public ids of related rows."""

    def to_representation(self, value: Any) -> list[str]:
        """Return them in the order they were made."""
        return [row.public_id for row in sorted(value.all(), key=lambda row: row.pk)]


class CheckpointInput(StrictSerializer):
    """A new checkpoint."""

    name = serializers.CharField(max_length=NAME_LENGTH)
    team = serializers.CharField(max_length=100, required=False)
    lineage = serializers.CharField(max_length=NAME_LENGTH, required=False, allow_blank=True)
    variant = serializers.CharField(max_length=NAME_LENGTH, required=False, allow_blank=True)
    parent = serializers.CharField(  # type: ignore[assignment]  # The framework takes it off.
        max_length=100, required=False, allow_null=True
    )
    attributes = SmallObject(required=False)


class CheckpointSerializer(serializers.Serializer[Any]):
    """A checkpoint."""

    id = serializers.CharField(source="public_id")
    name = serializers.CharField()
    team = serializers.CharField(source="team.slug")
    lineage = serializers.CharField()
    variant = serializers.CharField()
    parent = serializers.CharField(  # type: ignore[assignment]  # As above.
        source="parent.public_id", default=None, allow_null=True
    )
    attributes = serializers.DictField()
    created_at = serializers.DateTimeField()


class EvalRunInput(StrictSerializer):
    """A new evaluation run."""

    checkpoint = serializers.CharField(max_length=100)
    name = serializers.CharField(max_length=NAME_LENGTH)
    domain = serializers.CharField(
        max_length=100,
        required=False,
        allow_null=True,
        help_text="Slug or id of the domain of rows that name none.",
    )
    harness = SmallObject(required=False)
    sampling = SmallObject(required=False)


class EvalRunSerializer(serializers.Serializer[Any]):
    """An evaluation run."""

    id = serializers.CharField(source="public_id")
    name = serializers.CharField()
    checkpoint = serializers.CharField(source="checkpoint.public_id")
    domain = serializers.CharField(source="domain.slug", default=None, allow_null=True)
    harness = serializers.DictField()
    sampling = serializers.DictField()
    status = serializers.ChoiceField(choices=RunStatus.choices)
    rows = serializers.IntegerField()
    duplicates = serializers.IntegerField()
    conflicts = serializers.IntegerField()
    created_at = serializers.DateTimeField()
    sealed_at = serializers.DateTimeField(allow_null=True)


class ConflictSerializer(serializers.Serializer[Any]):
    """A row that was not stored because it contradicts one that is."""

    domain = serializers.CharField()
    task = serializers.CharField()
    attempt = serializers.IntegerField()
    line = serializers.IntegerField()
    reason = serializers.ChoiceField(choices=["content", "task_digest"])


class IngestSerializer(serializers.Serializer[Any]):
    """What became of the rows of one request."""

    received = serializers.IntegerField()
    inserted = serializers.IntegerField()
    duplicates = serializers.IntegerField()
    conflicts = ConflictSerializer(many=True, help_text="The first 20, by line.")
    conflicts_total = serializers.IntegerField()


class PolicyInput(StrictSerializer):
    """A policy file, stored as the next version of its name."""

    toml = serializers.CharField(max_length=200_000, trim_whitespace=False)
    name = serializers.CharField(max_length=NAME_LENGTH, required=False)
    team = serializers.CharField(max_length=100, required=False)


class PolicySerializer(serializers.Serializer[Any]):
    """One version of a policy."""

    id = serializers.CharField(source="public_id")
    name = serializers.CharField()
    version = serializers.IntegerField()
    team = serializers.CharField(source="team.slug")
    digest = serializers.CharField()
    toml = serializers.CharField(source="text")
    retired = serializers.BooleanField()
    created_by = serializers.CharField()
    created_at = serializers.DateTimeField()


class BaselineInput(StrictSerializer):
    """A new baseline; it replaces the one of the same kind and domain."""

    runs = Refs(
        allow_empty=False,
        max_length=MAX_RUNS,
        help_text="Runs, or checkpoints that stand for all theirs.",
    )
    kind = serializers.ChoiceField(choices=BaselineKind.choices)
    domain = serializers.CharField(max_length=100, required=False, allow_null=True)
    reason = serializers.CharField(max_length=2000, required=False, allow_blank=True)


class BaselineSerializer(serializers.Serializer[Any]):
    """What candidates are compared with."""

    id = serializers.CharField(source="public_id")
    kind = serializers.ChoiceField(choices=BaselineKind.choices)
    team = serializers.CharField(source="team.slug")
    domain = serializers.CharField(source="domain.slug", default=None, allow_null=True)
    checkpoint = serializers.CharField(source="checkpoint.public_id")
    checkpoint_name = serializers.CharField(source="checkpoint.name")
    runs = PublicIds(read_only=True)
    reason = serializers.CharField()
    active = serializers.BooleanField()
    set_by = serializers.CharField()
    set_at = serializers.DateTimeField()


class GateInput(StrictSerializer):
    """A new gate."""

    candidate = Refs(
        allow_empty=False, max_length=MAX_RUNS, help_text="Runs, or a checkpoint for all its runs."
    )
    baseline = Refs(
        allow_empty=False,
        max_length=MAX_RUNS,
        required=False,
        help_text="Likewise; left out, what was last promoted.",
    )
    policy = serializers.CharField(
        max_length=NAME_LENGTH,
        required=False,
        allow_null=True,
        help_text="Id of a version, or a name for its newest; left out, the default policy.",
    )


class GatePolicySerializer(serializers.Serializer[Any]):
    """Which policy a gate was decided under."""

    id = serializers.CharField(source="public_id")
    name = serializers.CharField()
    version = serializers.IntegerField()


class GateErrorSerializer(serializers.Serializer[Any]):
    """Why a gate could not be decided."""

    code = serializers.CharField()
    message = serializers.CharField()


class GateSerializer(serializers.Serializer[Any]):
    """A gate, without its report."""

    id = serializers.CharField(source="public_id")
    team = serializers.CharField(source="team.slug")
    status = serializers.ChoiceField(choices=GateStatus.choices)
    verdict = serializers.ChoiceField(choices=Verdict.choices, allow_blank=True)
    candidate = serializers.CharField(source="candidate.public_id")
    candidate_name = serializers.CharField(source="candidate.name")
    candidate_runs = PublicIds(read_only=True)
    baseline = serializers.CharField(source="baseline.public_id")
    baseline_name = serializers.CharField(source="baseline.name")
    baseline_runs = PublicIds(read_only=True)
    domain_baselines = serializers.DictField()
    policy = GatePolicySerializer(source="policy_row", allow_null=True)
    error = GateErrorSerializer(allow_null=True)
    record = serializers.CharField(help_text="Digest over inputs, policy and report.")
    job = serializers.SerializerMethodField()
    report = serializers.SerializerMethodField()
    created_by = serializers.CharField()
    created_at = serializers.DateTimeField()
    decided_at = serializers.DateTimeField(allow_null=True)

    def get_job(self, gate: Any) -> str:
        """Return where the job is."""
        return f"/api/v1/jobs/{gate.job_id}"

    def get_report(self, gate: Any) -> str | None:
        """Return where the report is, once there is one."""
        if gate.status != GateStatus.DECIDED:
            return None
        return f"/api/v1/gates/{gate.public_id}/report"


class GateStartedSerializer(serializers.Serializer[Any]):
    """A gate, and the job that decides it."""

    gate = GateSerializer()
    job = JobSerializer()
