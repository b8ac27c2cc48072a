"""Endpoints of waivers."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from django.urls import URLPattern, path
from drf_spectacular.utils import extend_schema
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
from qualityhub.api.v1.inspection_schemas import WaiverInput, WaiverSerializer
from qualityhub.inspections.access import access_waiver
from qualityhub.inspections.services import inspection_refresh
from qualityhub.inspections.waivers import waiver_grant, waiver_list, waiver_revoke
from qualityhub.registry.access import access_environment

if TYPE_CHECKING:
    from rest_framework.request import Request

READ = (Scope.ENVIRONMENTS_READ,)
WRITE = (Scope.INSPECTIONS_WRITE,)


class Waivers(Endpoint):
    """``waivers``."""

    scopes: ClassVar = {"GET": READ, "POST": WRITE}

    @extend_schema(
        operation_id="waivers_list",
        summary="List waivers",
        parameters=[
            *PAGING_PARAMETERS,
            *query_parameters(
                environment="Id of one environment.", active="true: only those in force."
            ),
        ],
        responses=page_of("Waiver", WaiverSerializer),
        tags=["inspections"],
    )
    def get(self, request: Request) -> Response:
        """Return one page, newest first."""
        query = read_query(request, "environment", "active", paged=True)
        rows = waiver_list(
            self.actor.team_ids,
            environment=query.get("environment", ""),
            active=chosen(query, "active", ("true", "false")) == "true",
        )
        return self.page(rows, WaiverSerializer)

    @extend_schema(
        operation_id="waivers_create",
        summary="Grant a waiver",
        description=(
            "For gatekeepers. It must end within a year. A waived finding stays a finding, is "
            "shown as waived, and never counts as a pass. The environment is judged again from "
            "stored results."
        ),
        parameters=[IDEMPOTENCY_PARAMETER],
        request=WaiverInput,
        responses={201: WaiverSerializer},
        tags=["inspections"],
    )
    def post(self, request: Request) -> Response:
        """Grant one."""
        body = read_body(WaiverInput, request)

        def work() -> Response:
            environment = access_environment(self.actor, body.pop("environment"), Role.GATEKEEPER)
            waiver = waiver_grant(environment=environment, actor=str(self.actor), **body)
            inspection_refresh(environment, actor=str(self.actor))
            waiver.refresh_from_db(fields=["created_at"])
            return Response(
                WaiverSerializer(waiver).data,
                status=201,
                headers={"Location": f"/api/v1/waivers/{waiver.public_id}"},
            )

        return self.once(work)


class OneWaiver(Endpoint):
    """``waivers/{id}``."""

    scopes: ClassVar = {"GET": READ, "DELETE": WRITE}

    @extend_schema(
        operation_id="waivers_get",
        summary="Get a waiver",
        responses=WaiverSerializer,
        tags=["inspections"],
    )
    def get(self, request: Request, ref: str) -> Response:
        """Return it."""
        read_query(request)
        return Response(WaiverSerializer(access_waiver(self.actor, ref)).data)

    @extend_schema(
        operation_id="waivers_revoke",
        summary="Revoke a waiver",
        description="It ends now and is kept as what it was.",
        responses={200: WaiverSerializer},
        tags=["inspections"],
    )
    def delete(self, request: Request, ref: str) -> Response:  # noqa: ARG002 - no body is read.
        """End it."""
        waiver = access_waiver(self.actor, ref, Role.GATEKEEPER)
        waiver_revoke(waiver, actor=str(self.actor))
        inspection_refresh(waiver.environment, actor=str(self.actor))
        return Response(WaiverSerializer(waiver).data)


urlpatterns: list[URLPattern] = [
    path("waivers", Waivers.as_view(), name="waivers"),
    path("waivers/<str:ref>", OneWaiver.as_view(), name="waiver"),
]
