"""Endpoints of audits."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar

from django.urls import URLPattern, path
from drf_spectacular.utils import extend_schema
from rest_framework.response import Response

from qualityhub.accounts.access import access_team
from qualityhub.accounts.choices import Role, Scope
from qualityhub.api.base import (
    IDEMPOTENCY_PARAMETER,
    PAGING_PARAMETERS,
    Endpoint,
    page_of,
    read_body,
    read_query,
)
from qualityhub.api.v1.inspection_schemas import AuditInput, AuditSerializer
from qualityhub.inspections.access import access_audit
from qualityhub.inspections.audits import audit_list, audit_run

if TYPE_CHECKING:
    from rest_framework.request import Request


class Audits(Endpoint):
    """``audits``."""

    scopes: ClassVar = {
        "GET": (Scope.ENVIRONMENTS_READ,),
        "POST": (Scope.INSPECTIONS_WRITE,),
    }

    @extend_schema(
        operation_id="audits_list",
        summary="List audits",
        parameters=PAGING_PARAMETERS,
        responses=page_of("Audit", AuditSerializer),
        tags=["inspections"],
    )
    def get(self, request: Request) -> Response:
        """Return one page, newest first."""
        read_query(request, paged=True)
        return self.page(audit_list(self.actor.team_ids), AuditSerializer)

    @extend_schema(
        operation_id="audits_start",
        summary="Start an audit now",
        description=(
            "Inspects afresh what is admitted and was last inspected too long ago; every night "
            "does the same. Follow it at its own address: it ends when its inspections have."
        ),
        parameters=[IDEMPOTENCY_PARAMETER],
        request=AuditInput,
        responses={202: AuditSerializer},
        tags=["inspections"],
    )
    def post(self, request: Request) -> Response:
        """Start one."""
        body = read_body(AuditInput, request)

        def work() -> Response:
            team = access_team(self.actor, body.get("team"), Role.GATEKEEPER)
            hours = body.get("stale_after_hours")
            run = audit_run(
                team=team,
                actor=str(self.actor),
                stale_after=timedelta(hours=hours) if hours is not None else None,
            )
            return Response(
                AuditSerializer(run).data,
                status=202,
                headers={"Location": f"/api/v1/audits/{run.public_id}"},
            )

        return self.once(work)


class OneAudit(Endpoint):
    """``audits/{id}``."""

    scopes: ClassVar = {"GET": (Scope.ENVIRONMENTS_READ,)}

    @extend_schema(
        operation_id="audits_get",
        summary="Get an audit",
        responses=AuditSerializer,
        tags=["inspections"],
    )
    def get(self, request: Request, ref: str) -> Response:
        """Return it, with what it found changed so far."""
        read_query(request)
        return Response(AuditSerializer(access_audit(self.actor, ref)).data)


urlpatterns: list[URLPattern] = [
    path("audits", Audits.as_view(), name="audits"),
    path("audits/<str:ref>", OneAudit.as_view(), name="audit"),
]
