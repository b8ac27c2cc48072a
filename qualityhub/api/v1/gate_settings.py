"""Endpoints of what gates are decided by: policies and baselines."""

from __future__ import annotations

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
    chosen,
    page_of,
    query_parameters,
    read_body,
    read_query,
)
from qualityhub.api.v1 import results
from qualityhub.api.v1.gates_schemas import (
    BaselineInput,
    BaselineSerializer,
    PolicyInput,
    PolicySerializer,
)
from qualityhub.gates.access import access_baseline, access_checkpoint, access_policy, access_runs
from qualityhub.gates.choices import BaselineKind
from qualityhub.gates.selectors import baseline_list, policy_list
from qualityhub.gates.services import baseline_set, policy_create, policy_retire
from qualityhub.registry.access import access_domain

if TYPE_CHECKING:
    from rest_framework.request import Request

READ = (Scope.GATES_READ,)
WRITE = (Scope.GATES_WRITE,)


class Policies(Endpoint):
    """``policies``."""

    scopes: ClassVar = {"GET": READ, "POST": WRITE}

    @extend_schema(
        operation_id="policies_list",
        summary="List policies",
        parameters=[
            *PAGING_PARAMETERS,
            *query_parameters(team=results.TEAM, name="All versions of one policy."),
        ],
        responses=page_of("Policy", PolicySerializer),
        tags=["gates"],
    )
    def get(self, request: Request) -> Response:
        """Return one page of all versions, newest first."""
        query = read_query(request, "team", "name", paged=True)
        rows = policy_list(results.teams_of(self.actor, query))
        if "name" in query:
            rows = rows.filter(name=query["name"])
        return self.page(rows, PolicySerializer)

    @extend_schema(
        operation_id="policies_create",
        summary="Add a version of a policy",
        parameters=[IDEMPOTENCY_PARAMETER],
        request=PolicyInput,
        responses={201: PolicySerializer, 200: PolicySerializer},
        tags=["gates"],
    )
    def post(self, request: Request) -> Response:
        """Store a policy file as the next version of its name; unchanged, it stays the newest."""
        body = read_body(PolicyInput, request)

        def work() -> Response:
            team = access_team(self.actor, body.get("team"), Role.GATEKEEPER)
            policy, created = policy_create(
                team=team, text=body["toml"], name=body.get("name", ""), actor=str(self.actor)
            )
            policy.refresh_from_db(fields=["created_at"])
            return Response(
                PolicySerializer(policy).data,
                status=201 if created else 200,
                headers={"Location": f"/api/v1/policies/{policy.public_id}"},
            )

        return self.once(work)


class OnePolicy(Endpoint):
    """``policies/{id}``."""

    scopes: ClassVar = {"GET": READ, "DELETE": WRITE}

    @extend_schema(
        operation_id="policies_get",
        summary="Get one version of a policy",
        responses=PolicySerializer,
        tags=["gates"],
    )
    def get(self, request: Request, ref: str) -> Response:
        """Return it."""
        read_query(request)
        return Response(PolicySerializer(access_policy(self.actor, ref)).data)

    @extend_schema(
        operation_id="policies_retire",
        summary="Retire one version of a policy",
        responses=PolicySerializer,
        tags=["gates"],
    )
    def delete(self, request: Request, ref: str) -> Response:
        """Keep it from new gates; what it decided stays."""
        read_query(request)
        policy = access_policy(self.actor, ref, Role.GATEKEEPER)
        return Response(PolicySerializer(policy_retire(policy=policy, actor=str(self.actor))).data)


class Baselines(Endpoint):
    """``baselines``."""

    scopes: ClassVar = {"GET": READ, "POST": WRITE}

    @extend_schema(
        operation_id="baselines_list",
        summary="List baselines",
        parameters=[
            *PAGING_PARAMETERS,
            *query_parameters(
                team=results.TEAM,
                kind="`last_promoted` or `anchor`.",
                active="`true` (default), or `all` for those that once were, too.",
            ),
        ],
        responses=page_of("Baseline", BaselineSerializer),
        tags=["gates"],
    )
    def get(self, request: Request) -> Response:
        """Return one page, newest first."""
        query = read_query(request, "team", "kind", "active", paged=True)
        everything = chosen(query, "active", ["true", "all"]) == "all"
        rows = baseline_list(results.teams_of(self.actor, query), active=not everything)
        if kind := chosen(query, "kind", BaselineKind.values):
            rows = rows.filter(kind=kind)
        return self.page(rows, BaselineSerializer)

    @extend_schema(
        operation_id="baselines_create",
        summary="Set a baseline",
        parameters=[IDEMPOTENCY_PARAMETER],
        request=BaselineInput,
        responses={201: BaselineSerializer},
        tags=["gates"],
    )
    def post(self, request: Request) -> Response:
        """Set a baseline; the one of the same kind and domain is replaced and kept on record."""
        body = read_body(BaselineInput, request)

        def work() -> Response:
            runs = access_runs(self.actor, body["runs"], Role.GATEKEEPER)
            if runs:
                team = runs[0].checkpoint.team
            else:
                team = access_checkpoint(self.actor, body["runs"][0], Role.GATEKEEPER).team
            ref = body.get("domain")
            baseline = baseline_set(
                team=team,
                kind=body["kind"],
                runs=runs,
                domain=access_domain(self.actor, ref, team=team) if ref else None,
                reason=body.get("reason", ""),
                actor=str(self.actor),
            )
            baseline.refresh_from_db(fields=["set_at"])
            return Response(
                BaselineSerializer(baseline).data,
                status=201,
                headers={"Location": f"/api/v1/baselines/{baseline.public_id}"},
            )

        return self.once(work)


class OneBaseline(Endpoint):
    """``baselines/{id}``."""

    scopes: ClassVar = {"GET": READ}

    @extend_schema(
        operation_id="baselines_get",
        summary="Get a baseline",
        responses=BaselineSerializer,
        tags=["gates"],
    )
    def get(self, request: Request, ref: str) -> Response:
        """Return it."""
        read_query(request)
        return Response(BaselineSerializer(access_baseline(self.actor, ref)).data)


urlpatterns: list[URLPattern] = [
    path("policies", Policies.as_view(), name="policies"),
    path("policies/<str:ref>", OnePolicy.as_view(), name="policy"),
    path("baselines", Baselines.as_view(), name="baselines"),
    path("baselines/<str:ref>", OneBaseline.as_view(), name="baseline"),
]
