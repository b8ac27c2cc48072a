"""The end of an inspection: report, findings, admission and job in one transaction."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

from django.db.models.functions import Now

from qualityhub.inspections.admission import admission_apply
from qualityhub.inspections.audits import audit_inspection_ended
from qualityhub.inspections.choices import InspectionStatus
from qualityhub.inspections.models import Finding, Inspection
from qualityhub.platform.audit import audit
from qualityhub.platform.jobs import JobStatus, job_finish
from qualityhub.platform.text import storable, storable_json

if TYPE_CHECKING:
    from qualityhub.engine import report as engine


def inspection_finish(
    inspection: Inspection, report: engine.InspectionReport, inputs: dict[str, Any]
) -> None:
    """Store a verdict and all that follows from it, within the fenced transaction.

    Args:
        inspection: The locked row.
        report: What the engine says.
        inputs: What the verdict was made from beside the trials.
    """
    document = finite(report.as_json())
    counts = finding_counts(report)
    fields: dict[str, Any] = {
        "status": InspectionStatus.FINISHED,
        "verdict": report.verdict,
        "provisional": bool(report.environment["provisional"]),
        "report": document,
        "inputs": inputs,
        "finding_counts": counts,
        "task_counts": dict(Counter(task.verdict for task in report.tasks)),
        "open_batches": 0,
    }
    Inspection.objects.filter(pk=inspection.pk).update(**fields, finished_at=Now())
    for name, value in fields.items():
        setattr(inspection, name, value)
    Finding.objects.bulk_create(
        [_row(inspection, position, item) for position, item in enumerate(report.findings)],
        batch_size=1000,
    )
    admission_apply(inspection, report)
    job_finish(
        inspection.job,
        JobStatus.SUCCEEDED,
        result={
            "inspection": inspection.public_id,
            "version": inspection.version.public_id,
            "verdict": report.verdict,
            "findings": counts,
            "report": f"/api/v1/inspections/{inspection.public_id}/report",
        },
    )
    audit_inspection_ended(inspection)
    audit(
        actor="system",
        action="inspection.finished",
        team=inspection.team.public_id,
        object_id=inspection.public_id,
        object_text=str(inspection.version.environment),
        after={"verdict": report.verdict, "findings": counts},
    )


def finding_counts(report: engine.InspectionReport) -> dict[str, int]:
    """Return findings by severity, and those waived, which count nowhere else."""
    return dict(
        Counter("waived" if finding.waived else finding.severity for finding in report.findings)
    )


def _row(inspection: Inspection, position: int, finding: engine.Finding) -> Finding:
    return Finding(
        inspection=inspection,
        position=position,
        finding_id=finding.id,
        fingerprint=finding.fingerprint,
        code=finding.code,
        rule_version=finding.rule_version,
        kind=finding.kind,
        severity=finding.severity,
        waived=finding.waived,
        task=storable(finding.task or "")[:512],
        title=storable(finding.title)[:200],
        message=storable(finding.message),
        fix=storable(finding.fix),
        location=storable(finding.location),
        evidence=storable_json(finite(finding.evidence)),
    )


def finite(value: Any) -> Any:
    """Return JSON without NaN and infinities, which foreign answers may hold and JSON has not."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if hasattr(value, "items"):
        return {str(key): finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return value
