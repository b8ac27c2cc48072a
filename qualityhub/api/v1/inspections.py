"""Endpoints of inspections and findings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from django.db.models import Q
from django.http import HttpResponse
from django.urls import URLPattern, path
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, inline_serializer
from rest_framework import serializers
from rest_framework.renderers import JSONRenderer
from rest_framework.response import Response

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
from qualityhub.api.v1.inspection_schemas import (
    VERDICTS,
    FindingSerializer,
    InspectInput,
    InspectionSerializer,
)
from qualityhub.engine.errors import ConflictError
from qualityhub.engine.policy import SEVERITIES
from qualityhub.engine.reports.json import dumps
from qualityhub.engine.reports.junit import inspection_junit
from qualityhub.engine.reports.markdown import inspection_markdown
from qualityhub.engine.reports.sarif import inspection_sarif
from qualityhub.engine.reports.text import inspection_text
from qualityhub.engine.rules.catalogue import CATALOGUE
from qualityhub.inspections.access import access_inspection
from qualityhub.inspections.choices import InspectionStatus, Trigger
from qualityhub.inspections.models import Finding
from qualityhub.inspections.selectors import finding_list, inspection_list
from qualityhub.inspections.services import generation_of, inspection_cancel, inspection_start
from qualityhub.platform.jobs import job_document
from qualityhub.registry.access import access_version

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rest_framework.request import Request

    from qualityhub.inspections.models import Inspection

READ = (Scope.ENVIRONMENTS_READ,)
WRITE = (Scope.INSPECTIONS_WRITE,)
STARTED = inline_serializer(
    "InspectionStarted",
    {"inspection": InspectionSerializer(), "job": serializers.DictField()},
)
FORMATS: dict[str, tuple[str, Callable[[Mapping[str, Any]], str]]] = {
    "json": ("application/json", dumps),
    "text": ("text/plain; charset=utf-8", inspection_text),
    "markdown": ("text/markdown; charset=utf-8", lambda report: inspection_markdown([report])),
    "junit": ("application/xml", lambda report: inspection_junit([report])),
    "sarif": (
        "application/sarif+json",
        lambda report: inspection_sarif([report], catalogue=CATALOGUE),
    ),
}


def started(inspection: Inspection) -> Response:
    """Return the answer to a request that started an inspection."""
    inspection.refresh_from_db(fields=["created_at"])
    inspection.job.refresh_from_db(fields=["created_at"])
    return Response(
        {
            "inspection": InspectionSerializer(inspection).data,
            "job": job_document(inspection.job),
        },
        status=202,
        headers={"Location": f"/api/v1/jobs/{inspection.job.public_id}"},
    )


class Inspect(Endpoint):
    """``versions/{ref}/inspect``."""

    scopes: ClassVar = {"POST": WRITE}

    @extend_schema(
        operation_id="versions_inspect",
        summary="Start an inspection of a version",
        description=(
            "Answers 202 with the job's address. Trials whose results are stored do not run again. "
            "An inspection with a policy of its own, or less effort than the domain's policy asks "
            "for, informs and changes nothing that is admitted."
        ),
        parameters=[IDEMPOTENCY_PARAMETER],
        request=InspectInput,
        responses={202: STARTED},
        tags=["inspections"],
    )
    def post(self, request: Request, ref: str) -> Response:
        """Start one."""
        version = access_version(self.actor, ref, Role.CONTRIBUTOR)
        body = read_body(InspectInput, request)

        def work() -> Response:
            return started(
                inspection_start(
                    version=version,
                    actor=str(self.actor),
                    policy=body.get("policy"),
                    effort=body.get("effort"),
                    trigger=Trigger(body["trigger"]),
                    generation=generation_of(version) + 1 if body["fresh"] else None,
                )
            )

        return self.once(work)


class Inspections(Endpoint):
    """``inspections``."""

    scopes: ClassVar = {"GET": READ}

    @extend_schema(
        operation_id="inspections_list",
        summary="List inspections",
        parameters=[
            *PAGING_PARAMETERS,
            *query_parameters(
                status="queued, preparing, running, finished, errored or cancelled.",
                verdict="admitted, partial, rejected, pending or error.",
                environment="Id of one environment.",
                version="Id of one version.",
                domain="Slug or id of one domain.",
            ),
        ],
        responses=page_of("Inspection", InspectionSerializer),
        tags=["inspections"],
    )
    def get(self, request: Request) -> Response:
        """Return one page, newest first."""
        query = read_query(
            request, "status", "verdict", "environment", "version", "domain", paged=True
        )
        rows = inspection_list(self.actor.team_ids)
        if status := chosen(query, "status", InspectionStatus.values):
            rows = rows.filter(status=status)
        if verdict := chosen(query, "verdict", VERDICTS):
            rows = rows.filter(verdict=verdict)
        if "environment" in query:
            rows = rows.filter(version__environment__public_id=query["environment"])
        if "version" in query:
            rows = rows.filter(version__public_id=query["version"])
        if "domain" in query:
            rows = rows.filter(
                Q(domain__slug=query["domain"]) | Q(domain__public_id=query["domain"])
            )
        return self.page(rows, InspectionSerializer)


class OneInspection(Endpoint):
    """``inspections/{id}``."""

    scopes: ClassVar = {"GET": READ}

    @extend_schema(
        operation_id="inspections_get",
        summary="Get an inspection",
        responses=InspectionSerializer,
        tags=["inspections"],
    )
    def get(self, request: Request, ref: str) -> Response:
        """Return it, without its report."""
        read_query(request)
        return Response(InspectionSerializer(access_inspection(self.actor, ref)).data)


class CancelInspection(Endpoint):
    """``inspections/{id}/cancel``."""

    scopes: ClassVar = {"POST": WRITE}

    @extend_schema(
        operation_id="inspections_cancel",
        summary="Cancel an inspection",
        description="Trials that are stored stay so; a later inspection finds them.",
        parameters=[IDEMPOTENCY_PARAMETER],
        request=None,
        responses=InspectionSerializer,
        tags=["inspections"],
    )
    def post(self, request: Request, ref: str) -> Response:  # noqa: ARG002 - no body is read.
        """End it without a verdict."""
        inspection = access_inspection(self.actor, ref, Role.CONTRIBUTOR)

        def work() -> Response:
            inspection_cancel(inspection, actor=str(self.actor))
            return Response(InspectionSerializer(inspection).data)

        return self.once(work)


class InspectionReport(Endpoint):
    """``inspections/{id}/report``."""

    scopes: ClassVar = {"GET": READ}

    def perform_content_negotiation(self, request: Request, force: bool = False) -> Any:  # noqa: ARG002
        """Leave ``format`` to the report: it names a document, not a way to send one."""
        return JSONRenderer(), "application/json"

    @extend_schema(
        operation_id="inspections_report",
        summary="Get an inspection's report",
        description=(
            "`qualityhub.inspection/1`, as the command line prints it. The forms that leave the "
            "hub (sarif, markdown, junit) carry no answer keys."
        ),
        parameters=[
            OpenApiParameter("format", str, OpenApiParameter.QUERY, enum=list(FORMATS)),
        ],
        responses={
            200: OpenApiTypes.OBJECT,
            (200, "application/sarif+json"): OpenApiTypes.OBJECT,
            (200, "text/plain"): OpenApiTypes.STR,
            (200, "text/markdown"): OpenApiTypes.STR,
            (200, "application/xml"): OpenApiTypes.STR,
        },
        tags=["inspections"],
    )
    def get(self, request: Request, ref: str) -> HttpResponse:
        """Return the report in the form asked for."""
        query = read_query(request, "format")
        inspection = access_inspection(self.actor, ref)
        if inspection.status != InspectionStatus.FINISHED:
            raise ConflictError(
                "inspection.no_report",
                f"The inspection is {inspection.status}: it has no report.",
                f"Ask again when /api/v1/jobs/{inspection.job.public_id} has succeeded.",
            )
        media_type, render = FORMATS[chosen(query, "format", list(FORMATS)) or "json"]
        return HttpResponse(render(inspection.report), content_type=media_type)


class Findings(Endpoint):
    """``findings``."""

    scopes: ClassVar = {"GET": READ}

    @extend_schema(
        operation_id="findings_list",
        summary="List findings",
        description=(
            "Of the newest finished inspection of every version, or of the one that `inspection` "
            "names."
        ),
        parameters=[
            *PAGING_PARAMETERS,
            *query_parameters(
                code="Rule code, or the beginning of several.",
                severity="error, warning or info.",
                environment="Id of one environment.",
                domain="Slug or id of one domain.",
                inspection="Id of one inspection.",
                waived="true or false.",
            ),
        ],
        responses=page_of("Finding", FindingSerializer),
        tags=["inspections"],
    )
    def get(self, request: Request) -> Response:
        """Return one page, newest first."""
        query = read_query(
            request,
            "code",
            "severity",
            "environment",
            "domain",
            "inspection",
            "waived",
            paged=True,
        )
        if "inspection" in query:
            inspection = access_inspection(self.actor, query["inspection"])
            rows = Finding.objects.filter(inspection=inspection).select_related(
                "inspection__version__environment__domain"
            )
        else:
            rows = finding_list(self.actor.team_ids)
        if "code" in query:
            rows = rows.filter(code__startswith=query["code"].upper())
        if severity := chosen(query, "severity", SEVERITIES):
            rows = rows.filter(severity=severity)
        if waived := chosen(query, "waived", ("true", "false")):
            rows = rows.filter(waived=waived == "true")
        if "environment" in query:
            rows = rows.filter(inspection__version__environment__public_id=query["environment"])
        if "domain" in query:
            rows = rows.filter(
                Q(inspection__domain__slug=query["domain"])
                | Q(inspection__domain__public_id=query["domain"])
            )
        return self.page(rows, FindingSerializer)


urlpatterns: list[URLPattern] = [
    path("versions/<str:ref>/inspect", Inspect.as_view(), name="version-inspect"),
    path("inspections", Inspections.as_view(), name="inspections"),
    path("inspections/<str:ref>", OneInspection.as_view(), name="inspection"),
    path("inspections/<str:ref>/cancel", CancelInspection.as_view(), name="inspection-cancel"),
    path("inspections/<str:ref>/report", InspectionReport.as_view(), name="inspection-report"),
    path("findings", Findings.as_view(), name="findings"),
]
