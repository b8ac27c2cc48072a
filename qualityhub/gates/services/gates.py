"""Starting gates and deciding them. The decision itself is the engine's."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from django.db import transaction
from django.utils import timezone

from qualityhub.engine.digest import digest_json
from qualityhub.engine.errors import ConflictError, InvalidInputError, QualityHubError
from qualityhub.engine.gate.decide import decide
from qualityhub.engine.gate.policy import GatePolicy as EnginePolicy
from qualityhub.engine.gate.policy import gate_policy_from
from qualityhub.gates.choices import BaselineKind, GateStatus
from qualityhub.gates.loading import rollups_of
from qualityhub.gates.models import Baseline, EvalRun, Gate, GateDomain, GatePolicy
from qualityhub.gates.services.baselines import single_checkpoint
from qualityhub.gates.services.policies import policy_parse
from qualityhub.platform.audit import audit
from qualityhub.platform.jobs import Job, JobStatus, job_create, job_finish, job_start
from qualityhub.platform.queue import GATE, enqueue
from qualityhub.registry.models import Domain

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from qualityhub.accounts.models import Team

logger = logging.getLogger(__name__)
TASK = "gate.decide"
DOMAIN_FIELDS = (
    "verdict",
    "cause",
    "reason",
    "tier",
    "n_tasks",
    "baseline_mean",
    "candidate_mean",
    "delta",
    "lower",
    "upper",
    "margin",
)


def gate_start(
    *,
    team: Team,
    candidate: Sequence[EvalRun],
    baseline: Sequence[EvalRun] | None = None,
    policy: GatePolicy | None = None,
    actor: str = "system",
) -> tuple[Gate, Job]:
    """Create a gate and send it to the workers.

    Args:
        team: Whose gate it is.
        candidate: Sealed runs of the candidate.
        baseline: Sealed runs of the baseline; None takes what was last promoted, and for domains
            with a baseline of their own that one.
        policy: A version of the team's; None is the default policy.
        actor: For the audit log.

    Returns:
        The gate, and the job that decides it.

    Raises:
        ConflictError: ``gates.run_open``, ``gates.no_runs``, ``gates.no_baseline``,
            ``policy.retired``.
        InvalidInputError: ``gates.mixed_checkpoints``, ``gates.same_run``, ``gates.foreign``.
    """
    candidate_checkpoint = single_checkpoint("candidate", candidate)
    own: dict[str, list[EvalRun]] = {}
    if baseline is None:
        baseline, own = _last_promoted(team)
    baseline_checkpoint = single_checkpoint("baseline", baseline)
    measured = {run.pk for runs in (baseline, *own.values()) for run in runs}
    shared = measured & {run.pk for run in candidate}
    if shared:
        raise InvalidInputError(
            "gates.same_run",
            "A run is on both sides.",
            "Measure the candidate and the baseline in runs of their own.",
        )
    for owner in (candidate_checkpoint.team_id, baseline_checkpoint.team_id):
        if owner != team.pk:
            raise InvalidInputError("gates.foreign", "The runs are another team's.")
    content = EnginePolicy()
    if policy is not None:
        if policy.team_id != team.pk or policy.retired:
            raise ConflictError(
                "policy.retired", f"The policy {policy} is retired.", "Choose a newer version."
            )
        content = policy_parse(policy.text)
    with transaction.atomic():
        gate = Gate.objects.create(
            team=team,
            candidate=candidate_checkpoint,
            baseline=baseline_checkpoint,
            policy_row=policy,
            policy=content.as_json(),
            domain_baselines={
                slug: sorted(run.public_id for run in runs) for slug, runs in own.items()
            },
            created_by=actor[:300],
        )
        gate.candidate_runs.set(candidate)
        gate.baseline_runs.set(baseline)
        job = job_create(team_id=team.pk, kind=TASK, object_id=gate.public_id)
        gate.job_id = job.public_id
        gate.save(update_fields=("job_id",))
        audit(
            actor=actor,
            action="gate.started",
            team=team.public_id,
            object_id=gate.public_id,
            object_text=_title(gate),
            after={"policy": gate.policy["version"]},
        )
        enqueue(TASK, gate.public_id, queue=GATE)
    return gate, job


def gate_decide(public_id: str) -> Gate:
    """Decide a gate that waits, once; a gate that was decided comes back as it is.

    What the engine refuses ends the gate and its job as failed, with the reason; what breaks in
    our own parts ends the job as errored.

    Raises:
        Gate.DoesNotExist: No such gate.
    """
    gate = Gate.objects.select_related("team", "candidate", "baseline").get(public_id=public_id)
    job = Job.objects.filter(public_id=gate.job_id).first()
    if gate.status != GateStatus.WAITING:
        return gate
    if job is not None and not job_start(job):
        _fail(gate, None, JobStatus.CANCELLED, "gate.cancelled", "The job was cancelled.")
        return gate
    try:
        report, inputs = _compute(gate)
        _store(gate, job, report, inputs)
    except QualityHubError as error:
        _fail(gate, job, JobStatus.FAILED, error.code, error.message)
    except Exception:
        logger.exception("gate_errored", extra={"fields": {"gate": gate.public_id}})
        _fail(
            gate,
            job,
            JobStatus.ERRORED,
            "machinery.unexpected",
            "Something of ours failed while deciding; the log has the cause.",
        )
    return gate


def gate_record(report: Mapping[str, Any], inputs: Mapping[str, Any]) -> str:
    """Return the digest that freezes a decision: its inputs, its policy and its outcome."""
    return digest_json("gate-record", {"inputs": dict(inputs), "report": dict(report)})


def _compute(gate: Gate) -> tuple[dict[str, Any], dict[str, Any]]:
    policy = gate_policy_from(gate.policy)
    candidate = list(gate.candidate_runs.order_by("id"))
    overall = list(gate.baseline_runs.order_by("id"))
    own = {
        slug: list(EvalRun.objects.filter(public_id__in=wanted).order_by("id"))
        for slug, wanted in gate.domain_baselines.items()
    }
    cluster = policy.cluster_attribute
    before = dict(rollups_of(overall, cluster_attribute=cluster))
    for slug, runs in own.items():
        before[slug] = rollups_of(runs, cluster_attribute=cluster).get(slug, ())
    after = rollups_of(candidate, cluster_attribute=cluster)
    decision = decide(policy, before, after, notes=_notes(candidate, overall, own))
    inputs = {
        "candidate": [_input(run) for run in candidate],
        "baseline": [_input(run) for run in overall],
        "domain_baselines": {slug: [_input(run) for run in runs] for slug, runs in own.items()},
    }
    return decision.as_json(), inputs


def _store(gate: Gate, job: Job | None, report: dict[str, Any], inputs: dict[str, Any]) -> None:
    with transaction.atomic():
        locked = Gate.objects.select_for_update(no_key=True).get(pk=gate.pk)
        if locked.status != GateStatus.WAITING:
            # Another worker had the same ticket and was faster; the decision is the same.
            gate.refresh_from_db()
            return
        gate.status = GateStatus.DECIDED
        gate.verdict = report["verdict"]
        gate.report = report
        gate.inputs = inputs
        gate.record = gate_record(report, inputs)
        gate.decided_at = timezone.now()
        gate.save(update_fields=("status", "verdict", "report", "inputs", "record", "decided_at"))
        domains = dict(Domain.objects.filter(team=gate.team).values_list("slug", "pk"))
        GateDomain.objects.bulk_create(
            GateDomain(
                gate=gate,
                domain_id=domains[item["domain"]],
                **{name: item[name] for name in DOMAIN_FIELDS},
            )
            for item in report["domains"]
        )
        audit(
            actor="system",
            action="gate.decided",
            team=gate.team.public_id,
            object_id=gate.public_id,
            object_text=_title(gate),
            after={"verdict": gate.verdict, "record": gate.record},
        )
        if job is not None:
            job_finish(
                job,
                JobStatus.SUCCEEDED,
                result={"gate": gate.public_id, "verdict": gate.verdict},
            )


def _fail(gate: Gate, job: Job | None, status: JobStatus, code: str, message: str) -> None:
    with transaction.atomic():
        changed = Gate.objects.filter(pk=gate.pk, status=GateStatus.WAITING).update(
            status=GateStatus.FAILED, error={"code": code, "message": message}
        )
        if job is not None:
            job_finish(job, status, error_code=code, error_message=message)
        if changed:
            audit(
                actor="system",
                action="gate.failed",
                team=gate.team.public_id,
                object_id=gate.public_id,
                object_text=_title(gate),
                after={"code": code},
            )
    gate.refresh_from_db()


def _last_promoted(team: Team) -> tuple[list[EvalRun], dict[str, list[EvalRun]]]:
    """Return the runs of the baseline in force, and by domain those of domains with their own."""
    rows = list(
        Baseline.objects.filter(team=team, kind=BaselineKind.LAST_PROMOTED, active=True)
        .select_related("domain")
        .prefetch_related("runs__checkpoint")
    )
    overall = next((row for row in rows if row.domain is None), None)
    if overall is None:
        raise ConflictError(
            "gates.no_baseline",
            "No baseline was named and the team has none in force.",
            'Name one: "baseline": ["run_…"], or set it: POST /api/v1/baselines.',
        )
    return list(overall.runs.all()), {
        row.domain.slug: list(row.runs.all()) for row in rows if row.domain is not None
    }


def _notes(
    candidate: Sequence[EvalRun],
    baseline: Sequence[EvalRun],
    own: Mapping[str, Sequence[EvalRun]],
) -> list[str]:
    notes = [
        f"{count} rows of the {side} contradicted an earlier row of the same attempt and were "
        "left out."
        for side, runs in (("baseline", baseline), ("candidate", candidate))
        if (count := sum(run.conflicts for run in runs))
    ]
    if own:
        notes.append(f"These domains have a baseline of their own: {', '.join(sorted(own))}.")
    return notes


def _input(run: EvalRun) -> dict[str, Any]:
    return {"run": run.public_id, "rows": run.rows, "conflicts": run.conflicts}


def _title(gate: Gate) -> str:
    return f"{gate.candidate.name} against {gate.baseline.name}"
