"""Endpoints of gates; with them, those of results, policies and baselines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from django.urls import URLPattern, path
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.response import Response

from qualityhub.accounts.access import not_found
from qualityhub.accounts.choices import Role, Scope
from qualityhub.api.base import (
    IDEMPOTENCY_PARAMETER,
    PAGING_PARAMETERS,
    Endpoint,
    chosen,
    page_of,
    query_parameters,
    read_body,
    read_query,
)
from qualityhub.api.v1 import gate_settings, results
from qualityhub.api.v1.gates_schemas import GateInput, GateSerializer, GateStartedSerializer
from qualityhub.engine.errors import ConflictError
from qualityhub.engine.reports.figures import Theme, gate_interval_figure
from qualityhub.gates.access import access_checkpoint, access_gate, access_policy, access_runs
from qualityhub.gates.choices import GateStatus, Verdict
from qualityhub.gates.selectors import gate_list, policy_newest
from qualityhub.gates.services import gate_start
from qualityhub.platform.ids import is_public_id

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rest_framework.request import Request

    from qualityhub.accounts.access import Actor
    from qualityhub.accounts.models import Team
    from qualityhub.gates.models import EvalRun, Gate, GatePolicy

READ = (Scope.GATES_READ,)
WRITE = (Scope.GATES_WRITE,)


class Gates(Endpoint):
    """``gates``."""

    scopes: ClassVar = {"GET": READ, "POST": WRITE}

    @extend_schema(
        operation_id="gates_list",
        summary="List gates",
        parameters=[
            *PAGING_PARAMETERS,
            *query_parameters(
                team=results.TEAM,
                candidate="Id of a checkpoint.",
                status="`waiting`, `decided` or `failed`.",
                verdict="`promote`, `block`, `inconclusive` or `incomparable`.",
            ),
        ],
        responses=page_of("Gate", GateSerializer),
        tags=["gates"],
    )
    def get(self, request: Request) -> Response:
        """Return one page, newest first, without the reports."""
        query = read_query(request, "team", "candidate", "status", "verdict", paged=True)
        rows = gate_list(results.teams_of(self.actor, query))
        if "candidate" in query:
            rows = rows.filter(candidate=access_checkpoint(self.actor, query["candidate"]))
        if status := chosen(query, "status", GateStatus.values):
            rows = rows.filter(status=status)
        if verdict := chosen(query, "verdict", Verdict.values):
            rows = rows.filter(verdict=verdict)
        return self.page(rows, GateSerializer)

    @extend_schema(
        operation_id="gates_create",
        summary="Compare a candidate with a baseline",
        parameters=[IDEMPOTENCY_PARAMETER],
        request=GateInput,
        responses={202: GateStartedSerializer},
        tags=["gates"],
    )
    def post(self, request: Request) -> Response:
        """Start a gate over sealed runs; `Location` is the job that decides it."""
        body = read_body(GateInput, request)

        def work() -> Response:
            candidate = access_runs(self.actor, body["candidate"], Role.CONTRIBUTOR)
            baseline = body.get("baseline")
            team = team_of(self.actor, body["candidate"], candidate)
            gate, job = gate_start(
                team=team,
                candidate=candidate,
                baseline=access_runs(self.actor, baseline) if baseline is not None else None,
                policy=_policy(self.actor, team, body.get("policy")),
                actor=str(self.actor),
            )
            gate.refresh_from_db(fields=["created_at"])
            job.refresh_from_db(fields=["created_at"])
            return Response(
                GateStartedSerializer({"gate": gate, "job": job}).data,
                status=202,
                headers={"Location": f"/api/v1/jobs/{job.public_id}"},
            )

        return self.once(work)


class OneGate(Endpoint):
    """``gates/{id}``."""

    scopes: ClassVar = {"GET": READ}

    @extend_schema(
        operation_id="gates_get", summary="Get a gate", responses=GateSerializer, tags=["gates"]
    )
    def get(self, request: Request, ref: str) -> Response:
        """Return it, without its report."""
        read_query(request)
        return Response(GateSerializer(access_gate(self.actor, ref)).data)


class GateReport(Endpoint):
    """``gates/{id}/report``."""

    scopes: ClassVar = {"GET": READ}

    @extend_schema(
        operation_id="gates_report",
        summary="Get a gate's report",
        responses=OpenApiTypes.OBJECT,
        tags=["gates"],
    )
    def get(self, request: Request, ref: str) -> Response:
        """Return the gate document, `qualityhub.gate/1`, as the command line prints it."""
        read_query(request)
        return Response(_report(access_gate(self.actor, ref)))


class GateFigure(Endpoint):
    """``gates/{id}/figure``."""

    scopes: ClassVar = {"GET": READ}

    @extend_schema(
        operation_id="gates_figure",
        summary="Get a gate's interval chart",
        parameters=query_parameters(theme="`light` (default) or `dark`."),
        responses=OpenApiTypes.OBJECT,
        tags=["gates"],
    )
    def get(self, request: Request, ref: str) -> Response:
        """Return the chart over all domains, as plotly JSON."""
        query = read_query(request, "theme")
        theme: Theme = "light"
        if chosen(query, "theme", ["light", "dark"]) == "dark":
            theme = "dark"
        return Response(gate_interval_figure(_report(access_gate(self.actor, ref)), theme))


def team_of(actor: Actor, refs: Sequence[str], runs: Sequence[EvalRun]) -> Team:
    """Return the team of the runs; where a checkpoint has none yet, the checkpoint's."""
    if runs:
        return runs[0].checkpoint.team
    return access_checkpoint(actor, refs[0]).team


def _report(gate: Gate) -> Mapping[str, Any]:
    if gate.report is None:
        reason = (gate.error or {}).get("message", "it is not decided yet.")
        raise ConflictError(
            "gates.not_decided",
            f"The gate has no report: {reason}",
            f"Its job is /api/v1/jobs/{gate.job_id}.",
        )
    return dict(gate.report)


def _policy(actor: Actor, team: Team, ref: str | None) -> GatePolicy | None:
    if ref is None:
        return None
    found = access_policy(actor, ref) if is_public_id(ref, "pol") else policy_newest(team, ref)
    if found is None or found.team_id != team.pk:
        raise not_found("policy")
    return found


urlpatterns: list[URLPattern] = [
    *results.urlpatterns,
    *gate_settings.urlpatterns,
    path("gates", Gates.as_view(), name="gates"),
    path("gates/<str:ref>", OneGate.as_view(), name="gate"),
    path("gates/<str:ref>/report", GateReport.as_view(), name="gate-report"),
    path("gates/<str:ref>/figure", GateFigure.as_view(), name="gate-figure"),
]
