"""What inspections, findings, waivers, policies and audits look like from outside."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from qualityhub.api.base import StrictSerializer
from qualityhub.engine.policy import EFFORTS, SEVERITIES
from qualityhub.inspections.admission import MOST_DIGESTS
from qualityhub.inspections.choices import AuditStatus, AuditTrigger, InspectionStatus, Trigger

VERDICTS = ("admitted", "partial", "rejected", "pending", "error")


class ProgressSerializer(serializers.Serializer[Any]):
    """How far an inspection is; the total grows with every round."""

    trials = serializers.IntegerField(source="trials_total")
    done = serializers.IntegerField(source="trials_done")
    cached = serializers.IntegerField(source="trials_cached")
    asks = serializers.IntegerField(source="asks_total")
    round = serializers.IntegerField()


class WaitingSerializer(serializers.Serializer[Any]):
    """Why nobody goes on with an inspection."""

    reason = serializers.CharField(source="waits_for")
    since = serializers.DateTimeField(source="waits_since")


class FailureSerializer(serializers.Serializer[Any]):
    """Why our machinery gave up."""

    code = serializers.CharField(source="error_code")
    message = serializers.CharField(source="error_message")


class InspectionSerializer(serializers.Serializer[Any]):
    """An inspection without its report."""

    id = serializers.CharField(source="public_id")
    version = serializers.CharField(source="version.public_id")
    digest = serializers.CharField(source="version.digest")
    environment = serializers.CharField(source="version.environment.public_id")
    name = serializers.CharField(source="version.environment.slug")
    domain = serializers.CharField(source="version.environment.domain.slug")
    status = serializers.ChoiceField(InspectionStatus.choices)
    verdict = serializers.SerializerMethodField()
    decides = serializers.BooleanField(help_text="Whether it may change what is admitted.")
    provisional = serializers.BooleanField()
    trigger = serializers.ChoiceField(Trigger.choices)
    effort = serializers.ChoiceField(EFFORTS)
    policy_version = serializers.CharField()
    generation = serializers.IntegerField()
    findings = serializers.DictField(
        source="finding_counts", child=serializers.IntegerField(), help_text="By severity."
    )
    tasks = serializers.DictField(
        source="task_counts", child=serializers.IntegerField(), help_text="By verdict."
    )
    progress = ProgressSerializer(source="*")
    waiting = serializers.SerializerMethodField()
    error = serializers.SerializerMethodField()
    audit = serializers.SerializerMethodField()
    audit_reason = serializers.CharField()
    actor = serializers.CharField()
    created_at = serializers.DateTimeField()
    started_at = serializers.DateTimeField(allow_null=True)
    finished_at = serializers.DateTimeField(allow_null=True)
    job = serializers.SerializerMethodField()
    report = serializers.SerializerMethodField()
    url = serializers.SerializerMethodField()

    def get_verdict(self, inspection: Any) -> str | None:
        """Return the verdict, or null before the end."""
        return inspection.verdict or None

    @extend_schema_field(WaitingSerializer(allow_null=True))
    def get_waiting(self, inspection: Any) -> dict[str, Any] | None:
        """Return what it waits for while no worker can go on with it, or null."""
        return dict(WaitingSerializer(inspection).data) if inspection.waits_for else None

    def get_error(self, inspection: Any) -> dict[str, str] | None:
        """Return why our machinery gave up, or null."""
        return dict(FailureSerializer(inspection).data) if inspection.error_code else None

    def get_audit(self, inspection: Any) -> str | None:
        """Return the audit it belongs to, or null."""
        return inspection.audit_run.public_id if inspection.audit_run else None

    def get_job(self, inspection: Any) -> str:
        """Return where its job is."""
        return f"/api/v1/jobs/{inspection.job.public_id}"

    def get_report(self, inspection: Any) -> str | None:
        """Return where its report is, or null before the end."""
        ready = inspection.status == InspectionStatus.FINISHED
        return f"/api/v1/inspections/{inspection.public_id}/report" if ready else None

    def get_url(self, inspection: Any) -> str:
        """Return where it is."""
        return f"/api/v1/inspections/{inspection.public_id}"


class InspectInput(StrictSerializer):
    """How to inspect; all of it may be left out."""

    policy = serializers.DictField(
        required=False,
        help_text="An [admission] table in place of the domain's; the result only informs.",
    )
    effort = serializers.ChoiceField(
        EFFORTS, required=False, help_text="Less than the domain's policy asks for only informs."
    )
    fresh = serializers.BooleanField(
        required=False,
        default=False,
        help_text="Run every trial again, whatever is stored.",
    )
    trigger = serializers.ChoiceField(["manual", "ci"], required=False, default="manual")


class FindingSerializer(serializers.Serializer[Any]):
    """A finding of an inspection."""

    id = serializers.CharField(source="finding_id")
    code = serializers.CharField()
    rule_version = serializers.IntegerField()
    kind = serializers.ChoiceField(["finding", "lead"])
    severity = serializers.ChoiceField(SEVERITIES)
    waived = serializers.BooleanField()
    task = serializers.SerializerMethodField()
    title = serializers.CharField()
    message = serializers.CharField()
    fix = serializers.CharField()
    location = serializers.CharField()
    evidence = serializers.DictField()
    fingerprint = serializers.CharField()
    inspection = serializers.CharField(source="inspection.public_id")
    version = serializers.CharField(source="inspection.version.public_id")
    environment = serializers.CharField(source="inspection.version.environment.public_id")
    name = serializers.CharField(source="inspection.version.environment.slug")
    domain = serializers.CharField(source="inspection.version.environment.domain.slug")

    def get_task(self, finding: Any) -> str | None:
        """Return the task's id, or null for the whole package."""
        return finding.task or None


class WaiverSerializer(serializers.Serializer[Any]):
    """A waiver."""

    id = serializers.CharField(source="public_id")
    environment = serializers.CharField(source="environment.public_id")
    code = serializers.CharField()
    task = serializers.SerializerMethodField()
    reason = serializers.CharField()
    until = serializers.DateField()
    granted_by = serializers.CharField()
    created_at = serializers.DateTimeField()
    revoked_at = serializers.DateTimeField(allow_null=True)
    revoked_by = serializers.CharField()

    def get_task(self, waiver: Any) -> str | None:
        """Return the task's id, or null for every task."""
        return waiver.task or None


class WaiverInput(StrictSerializer):
    """A waiver to be granted."""

    environment = serializers.CharField(max_length=40)
    code = serializers.CharField(max_length=20)
    task = serializers.CharField(
        max_length=512, required=False, default="", allow_blank=True, help_text="Empty: every task."
    )
    reason = serializers.CharField(max_length=2000)
    until = serializers.DateField(help_text="Last day on which it holds; at most a year ahead.")


class AdmissionPolicySerializer(serializers.Serializer[Any]):
    """A domain's admission policy."""

    domain = serializers.CharField()
    number = serializers.IntegerField(help_text="0: the built-in policy; none was set.")
    version = serializers.CharField(help_text="Digest of the content; reports name it.")
    policy = serializers.DictField()
    created_by = serializers.CharField(allow_null=True)
    created_at = serializers.DateTimeField(allow_null=True)


class DigestsField(serializers.ListField):
    """A list of digests; its usual form is checked at once, since it may be asked at every step."""

    def run_child_validation(self, data: Any) -> list[str]:
        """Return the digests as they are, or let the child say what is wrong with which."""
        if all(isinstance(item, str) and len(item) <= 100 and item.isprintable() for item in data):
            return list(data)
        checked: list[str] = super().run_child_validation(data)
        return checked


class CheckInput(StrictSerializer):
    """What is asked."""

    digests = DigestsField(
        child=serializers.CharField(max_length=100),
        max_length=MOST_DIGESTS,
        help_text="Digests of versions or tasks.",
    )


class AnswerSerializer(serializers.Serializer[Any]):
    """Whether training may use what a digest names."""

    digest = serializers.CharField()
    admitted = serializers.BooleanField()
    reason = serializers.CharField(
        help_text="admitted, unknown, not_judged, quarantined, gate_task, or the version's state."
    )


class CheckSerializer(serializers.Serializer[Any]):
    """Answers in the order asked."""

    results = AnswerSerializer(many=True)


class AuditSerializer(serializers.Serializer[Any]):
    """An audit."""

    id = serializers.CharField(source="public_id")
    team = serializers.CharField(source="team.slug")
    trigger = serializers.ChoiceField(AuditTrigger.choices)
    status = serializers.ChoiceField(AuditStatus.choices)
    actor = serializers.CharField()
    considered = serializers.IntegerField(help_text="Admitted versions looked at.")
    started = serializers.IntegerField(help_text="Inspections started.")
    remaining = serializers.IntegerField(help_text="Inspections that have not ended.")
    changes = serializers.ListField(
        child=serializers.DictField(), help_text="Versions whose verdict or findings changed."
    )
    created_at = serializers.DateTimeField()
    finished_at = serializers.DateTimeField(allow_null=True)
    url = serializers.SerializerMethodField()

    def get_url(self, run: Any) -> str:
        """Return where it is."""
        return f"/api/v1/audits/{run.public_id}"


class AuditInput(StrictSerializer):
    """What to audit."""

    team = serializers.CharField(max_length=63, required=False)
    stale_after_hours = serializers.IntegerField(
        min_value=0,
        max_value=24 * 3650,
        required=False,
        help_text="0 inspects everything that is admitted.",
    )
