"""Endpoints of domains and environments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from qualityhub.accounts.access import access_team
from qualityhub.accounts.choices import Role, Scope
from qualityhub.api.base import (
    IDEMPOTENCY_PARAMETER,
    PAGING_PARAMETERS,
    Endpoint,
    StrictSerializer,
    page_of,
    query_parameters,
    read_body,
    read_query,
)
from qualityhub.registry import selectors, services
from qualityhub.registry.access import access_domain, access_environment
from qualityhub.registry.choices import TaskRole

if TYPE_CHECKING:
    from rest_framework.request import Request


READ = (Scope.ENVIRONMENTS_READ,)
WRITE = (Scope.ENVIRONMENTS_WRITE,)


class DomainSerializer(serializers.Serializer[Any]):
    """A domain."""

    id = serializers.CharField(source="public_id")
    team = serializers.CharField(source="team.slug")
    slug = serializers.CharField()
    name = serializers.CharField()
    description = serializers.CharField()
    environments = serializers.IntegerField(source="environment_count", default=0)
    created_at = serializers.DateTimeField()


class DomainInput(StrictSerializer):
    """What a domain is made from."""

    name = serializers.CharField(max_length=100)
    slug = serializers.CharField(max_length=63, required=False)
    description = serializers.CharField(max_length=10_000, required=False, allow_blank=True)
    team = serializers.CharField(max_length=63, required=False)


class EnvironmentSerializer(serializers.Serializer[Any]):
    """An environment."""

    id = serializers.CharField(source="public_id")
    team = serializers.CharField(source="team.slug")
    domain = serializers.CharField(source="domain.slug")
    slug = serializers.CharField()
    name = serializers.CharField()
    description = serializers.CharField()
    owners = serializers.SerializerMethodField()
    versions = serializers.IntegerField(source="version_count", default=0)
    created_at = serializers.DateTimeField()
    url = serializers.SerializerMethodField()

    def get_owners(self, environment: Any) -> list[str]:
        """Return the owners' addresses."""
        return sorted(owner.email for owner in environment.owners.all())

    def get_url(self, environment: Any) -> str:
        """Return where it is."""
        return f"/api/v1/environments/{environment.public_id}"


class EnvironmentInput(StrictSerializer):
    """What an environment is made from."""

    domain = serializers.CharField(max_length=63, help_text="Slug or id of a domain.")
    name = serializers.CharField(max_length=200)
    slug = serializers.CharField(max_length=63, required=False)
    description = serializers.CharField(max_length=10_000, required=False, allow_blank=True)
    team = serializers.CharField(max_length=63, required=False)


class EnvironmentChange(StrictSerializer):
    """What can be changed."""

    name = serializers.CharField(max_length=200, required=False)
    description = serializers.CharField(max_length=10_000, required=False, allow_blank=True)


class RolesInput(StrictSerializer):
    """Roles by task id."""

    roles = serializers.DictField(
        child=serializers.ChoiceField(TaskRole.choices), allow_empty=False, help_text="By task id."
    )


class Domains(Endpoint):
    """``domains``."""

    scopes: ClassVar = {"GET": READ, "POST": WRITE}

    @extend_schema(
        operation_id="domains_list",
        summary="List domains",
        parameters=[
            *PAGING_PARAMETERS,
            *query_parameters(q="Part of slug or name.", team="Slug or id of one team."),
        ],
        responses=page_of("Domain", DomainSerializer),
        tags=["registry"],
    )
    def get(self, request: Request) -> Response:
        """Return one page, by slug."""
        query = read_query(request, "q", "team", paged=True)
        team = access_team(self.actor, query["team"]) if "team" in query else None
        rows = selectors.domain_list(self.actor, team=team, q=query.get("q", ""))
        return self.page(rows, DomainSerializer, ("slug", "id"))

    @extend_schema(
        operation_id="domains_create",
        summary="Create a domain",
        parameters=[IDEMPOTENCY_PARAMETER],
        request=DomainInput,
        responses={201: DomainSerializer},
        tags=["registry"],
    )
    def post(self, request: Request) -> Response:
        """Create one."""
        body = read_body(DomainInput, request)

        def work() -> Response:
            team = access_team(self.actor, body.pop("team", None), Role.CONTRIBUTOR)
            domain = services.domain_create(team=team, actor=str(self.actor), **body)
            return created(DomainSerializer(domain).data, f"domains/{domain.public_id}")

        return self.once(work)


class OneDomain(Endpoint):
    """``domains/{ref}``."""

    scopes: ClassVar = {"GET": READ}

    @extend_schema(
        operation_id="domains_get",
        summary="Get a domain by id or slug",
        responses=DomainSerializer,
        tags=["registry"],
    )
    def get(self, request: Request, ref: str) -> Response:
        """Return it."""
        read_query(request)
        domain = access_domain(self.actor, ref)
        counted = selectors.domain_list(self.actor).get(pk=domain.pk)
        return Response(DomainSerializer(counted).data)


class Environments(Endpoint):
    """``environments``."""

    scopes: ClassVar = {"GET": READ, "POST": WRITE}

    @extend_schema(
        operation_id="environments_list",
        summary="List environments",
        parameters=[
            *PAGING_PARAMETERS,
            *query_parameters(
                domain="Slug or id of one domain.",
                name="Exact slug or name.",
                q="Part of slug, name or description.",
            ),
        ],
        responses=page_of("Environment", EnvironmentSerializer),
        tags=["registry"],
    )
    def get(self, request: Request) -> Response:
        """Return one page, newest first."""
        query = read_query(request, "domain", "name", "q", paged=True)
        rows = selectors.environment_list(self.actor, **query)
        return self.page(rows, EnvironmentSerializer)

    @extend_schema(
        operation_id="environments_create",
        summary="Create an environment",
        parameters=[IDEMPOTENCY_PARAMETER],
        request=EnvironmentInput,
        responses={201: EnvironmentSerializer},
        tags=["registry"],
    )
    def post(self, request: Request) -> Response:
        """Create one; the caller becomes its owner."""
        body = read_body(EnvironmentInput, request)

        def work() -> Response:
            ref = body.pop("team", None)
            team = access_team(self.actor, ref) if ref else None
            domain = access_domain(self.actor, body.pop("domain"), Role.CONTRIBUTOR, team=team)
            environment = services.environment_create(
                domain=domain, owners=[self.actor.user], actor=str(self.actor), **body
            )
            return created(
                EnvironmentSerializer(environment).data, f"environments/{environment.public_id}"
            )

        return self.once(work)


class OneEnvironment(Endpoint):
    """``environments/{id}``."""

    scopes: ClassVar = {"GET": READ, "PATCH": WRITE}

    @extend_schema(
        operation_id="environments_get",
        summary="Get an environment",
        responses=EnvironmentSerializer,
        tags=["registry"],
    )
    def get(self, request: Request, ref: str) -> Response:
        """Return it."""
        read_query(request)
        return self._shown(ref)

    @extend_schema(
        operation_id="environments_update",
        summary="Change name or description",
        request=EnvironmentChange,
        responses=EnvironmentSerializer,
        tags=["registry"],
    )
    def patch(self, request: Request, ref: str) -> Response:
        """Change it."""
        environment = access_environment(self.actor, ref, Role.CONTRIBUTOR)
        changes = read_body(EnvironmentChange, request)
        services.environment_update(environment, changes, actor=str(self.actor))
        return self._shown(ref)

    def _shown(self, ref: str) -> Response:
        environment = access_environment(self.actor, ref)
        counted = selectors.environment_list(self.actor).get(pk=environment.pk)
        return Response(EnvironmentSerializer(counted).data)


class TaskRoles(Endpoint):
    """``environments/{id}/task-roles``."""

    scopes: ClassVar = {"PUT": WRITE}

    @extend_schema(
        operation_id="environments_task_roles",
        summary="Say what tasks may be used for",
        description=(
            "`train`, `gate` or `both`, for all versions so far and to come. Admission never hands "
            "out a gate task for training. Tasks that are not named keep their role."
        ),
        request=RolesInput,
        responses={204: None},
        tags=["registry"],
    )
    def put(self, request: Request, ref: str) -> Response:
        """Set roles."""
        environment = access_environment(self.actor, ref, Role.GATEKEEPER)
        roles = read_body(RolesInput, request)["roles"]
        services.task_roles_set(environment, roles, actor=str(self.actor))
        return Response(status=204)


def created(document: Any, where: str) -> Response:
    """Return the answer to a POST that made something, with where it is."""
    return Response(document, status=201, headers={"Location": f"/api/v1/{where}"})


urlpatterns = [
    path("domains", Domains.as_view(), name="domains"),
    path("domains/<str:ref>", OneDomain.as_view(), name="domain"),
    path("environments", Environments.as_view(), name="environments"),
    path("environments/<str:ref>", OneEnvironment.as_view(), name="environment"),
    path("environments/<str:ref>/task-roles", TaskRoles.as_view(), name="task-roles"),
]
