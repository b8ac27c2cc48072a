"""Inspections that have ended, without a worker."""

from __future__ import annotations

import pytest

from qualityhub.engine.report import Finding, InspectionReport, RuleReport, TaskReport


@pytest.fixture
def gatekeeper_api(make_api, make_user, team):
    return make_api(make_user("gatekeeper@example.org", team, "gatekeeper"), team)


@pytest.fixture
def contributor_api(make_api, contributor, team):
    return make_api(contributor, team)


@pytest.fixture
def judged():
    """``judged(version, bad=["t1"])`` returns an inspection that ended with these tasks rejected."""
    from qualityhub.inspections.models import Inspection
    from qualityhub.inspections.services import inspection_start
    from qualityhub.inspections.verdicts import inspection_finish

    def make(version, bad=(), actor="owner@example.org", **fields):
        inspection = inspection_start(version=version, actor=actor, **fields)
        inspection.batches.all().delete()
        tasks = list(version.tasks.order_by("position"))
        findings = tuple(
            Finding(
                id=f"f-{position:012x}",
                code="VER001",
                rule_version=1,
                kind="finding",
                severity="error",
                waived=False,
                task=task.task_id,
                message=f"The reference of {task.task_id} fails.",
                evidence={"expected": 1.0, "seen": {"reward": 0.0}, "answer_key": "return 42"},
                location="tasks.jsonl:1",
                reproduce="qualityhub reproduce f-1",
                fingerprint=f"qh1:{position:064x}",
                title="The reference fails its own tests",
                fix="Repair the test or the reference.",
            )
            for position, task in enumerate(tasks)
            if task.task_id in bad
        )
        report = InspectionReport(
            environment={
                "name": "sums",
                "adapter": "gymnasium",
                "digest": version.digest,
                "tasks": len(tasks),
                "provisional": False,
                "provisional_reason": "",
                "family": "episode",
                "domain": "code",
                "source": version.source,
                "lock": [],
            },
            verdict="rejected" if len(findings) == len(tasks) else "partial" if bad else "admitted",
            policy=inspection.policy,
            findings=findings,
            tasks=tuple(
                TaskReport(
                    task.task_id,
                    task.digest,
                    task.layers,
                    "quarantined" if task.task_id in bad else "admitted",
                )
                for task in tasks
            ),
            not_measured=(),
            rules=(RuleReport("VER001", "fail" if bad else "pass", title="The reference fails"),),
            trials={"run": 2, "cached": 0, "seconds": 1.0},
            host={"arch": "x86_64"},
        )
        inspection_finish(inspection, report, {})
        return Inspection.objects.get(pk=inspection.pk)

    return make
