"""Endpoints of teams, tokens and jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response

from qualityhub.accounts.access import access_job, access_team, access_token
from qualityhub.accounts.choices import JOB_SCOPES, Scope
from qualityhub.accounts.selectors import job_list, membership_list, token_list
from qualityhub.accounts.services import token_create, token_revoke
from qualityhub.api.base import (
    IDEMPOTENCY_PARAMETER,
    PAGING_PARAMETERS,
    Endpoint,
    StrictSerializer,
    chosen,
    page_of,
    query_parameters,
    read_body,
    read_query,
)
from qualityhub.engine.errors import ForbiddenError
from qualityhub.platform.jobs import JobStatus, job_document

if TYPE_CHECKING:
    from rest_framework.request import Request

    from qualityhub.platform.jobs import Job

SEE_JOBS = tuple(JOB_SCOPES.values())


class TokenSerializer(serializers.Serializer[Any]):
    """A token without its secret."""

    id = serializers.CharField(source="public_id")
    name = serializers.CharField()
    prefix = serializers.SerializerMethodField()
    team = serializers.CharField(source="team.slug")
    user = serializers.EmailField(source="user.email")
    scopes = serializers.ListField(child=serializers.ChoiceField(Scope.choices))
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField(allow_null=True)
    last_used_at = serializers.DateTimeField(allow_null=True)
    revoked_at = serializers.DateTimeField(allow_null=True)

    def get_prefix(self, token: Any) -> str:
        """Return the part that may be shown, to tell tokens apart."""
        return f"qh_{token.key}_"


class NewTokenSerializer(TokenSerializer):
    """A token with its secret, shown this once."""

    token = serializers.CharField(help_text="Shown once; only its digest is stored.")


class TokenInput(StrictSerializer):
    """What a token is made from."""

    name = serializers.CharField(max_length=100)
    scopes = serializers.ListField(child=serializers.ChoiceField(Scope.choices), allow_empty=False)
    team = serializers.CharField(max_length=63, required=False)
    expires_at = serializers.DateTimeField(required=False, allow_null=True)


class MembershipSerializer(serializers.Serializer[Any]):
    """A team and the caller's role in it."""

    id = serializers.CharField(source="team.public_id")
    slug = serializers.CharField(source="team.slug")
    name = serializers.CharField(source="team.name")
    role = serializers.CharField()


class MeSerializer(serializers.Serializer[Any]):
    """Who is asking, and what they may do."""

    user = serializers.EmailField()
    scopes = serializers.ListField(child=serializers.CharField(), allow_null=True)
    teams = MembershipSerializer(many=True)


class JobProgressSerializer(serializers.Serializer[Any]):
    """How far a job is."""

    done = serializers.IntegerField()
    total = serializers.IntegerField()
    message = serializers.CharField()


class JobErrorSerializer(serializers.Serializer[Any]):
    """Why a job failed or errored."""

    code = serializers.CharField()
    message = serializers.CharField()


class JobSerializer(serializers.Serializer[Any]):
    """A job."""

    id = serializers.CharField()
    kind = serializers.CharField()
    status = serializers.ChoiceField(JobStatus.choices)
    object = serializers.CharField(allow_null=True, help_text="Public id of its subject.")
    progress = JobProgressSerializer()
    result = serializers.JSONField(allow_null=True)
    error = JobErrorSerializer(allow_null=True)
    attempt = serializers.IntegerField()
    created_at = serializers.DateTimeField()
    started_at = serializers.DateTimeField(allow_null=True)
    finished_at = serializers.DateTimeField(allow_null=True)
    url = serializers.CharField()

    def to_representation(self, instance: Job) -> Any:
        """Return the job's document."""
        return super().to_representation(job_document(instance))


class MyTeams(Endpoint):
    """``teams/me``."""

    @extend_schema(
        operation_id="teams_me",
        summary="Who am I",
        description="The caller, the token's scopes (null in a browser session) and their teams.",
        responses=MeSerializer,
        tags=["accounts"],
    )
    def get(self, request: Request) -> Response:
        """Return the caller."""
        read_query(request)
        token = self.actor.token
        return Response(
            MeSerializer(
                {
                    "user": self.actor.user.email,
                    "scopes": token.scopes if token else None,
                    "teams": membership_list(self.actor),
                }
            ).data
        )


class Tokens(Endpoint):
    """``tokens``."""

    scopes: ClassVar = {"GET": (Scope.TOKENS_WRITE,), "POST": (Scope.TOKENS_WRITE,)}

    @extend_schema(
        operation_id="tokens_list",
        summary="List tokens",
        description="The caller's own tokens, and all tokens of teams they administer.",
        parameters=PAGING_PARAMETERS,
        responses=page_of("Token", TokenSerializer),
        tags=["accounts"],
    )
    def get(self, request: Request) -> Response:
        """Return one page."""
        read_query(request, paged=True)
        return self.page(token_list(self.actor), TokenSerializer)

    @extend_schema(
        operation_id="tokens_create",
        summary="Create a token",
        description="A token can only make tokens with scopes that it has itself.",
        parameters=[IDEMPOTENCY_PARAMETER],
        request=TokenInput,
        responses={201: NewTokenSerializer},
        tags=["accounts"],
    )
    def post(self, request: Request) -> Response:
        """Create one. Its secret is stored nowhere, so an Idempotency-Key is not taken."""
        if request.headers.get("Idempotency-Key"):
            raise ForbiddenError(
                "idempotency.not_here",
                "A token's secret is never stored, so this answer could not be repeated.",
                "Send it without Idempotency-Key; revoke what you do not need.",
            )
        body = read_body(TokenInput, request)
        lacking = [scope for scope in body["scopes"] if not self.actor.has_scope(scope)]
        if lacking:
            raise ForbiddenError(
                "access.scope", f"A token without the scope {lacking[0]} cannot pass it on."
            )
        token, plain = token_create(
            user=self.actor.user,
            team=access_team(self.actor, body.get("team")),
            name=body["name"],
            scopes=body["scopes"],
            expires_at=body.get("expires_at"),
            actor=str(self.actor),
        )
        document = {**TokenSerializer(token).data, "token": plain}
        return Response(document, status=201)


class OneToken(Endpoint):
    """``tokens/{id}``."""

    scopes: ClassVar = {"DELETE": (Scope.TOKENS_WRITE,)}

    @extend_schema(
        operation_id="tokens_revoke",
        summary="Revoke a token",
        description="It stops working at once; revoking it again changes nothing.",
        responses={204: None},
        tags=["accounts"],
    )
    def delete(self, request: Request, ref: str) -> Response:
        """Revoke it."""
        read_query(request)
        token_revoke(access_token(self.actor, ref), actor=str(self.actor))
        return Response(status=204)


class Jobs(Endpoint):
    """``jobs``."""

    scopes: ClassVar = {"GET": SEE_JOBS}

    @extend_schema(
        operation_id="jobs_list",
        summary="List jobs",
        description="Of the kinds that the token covers: inspections with environments:read, "
        "gates with gates:read.",
        parameters=[
            *PAGING_PARAMETERS,
            *query_parameters(status="One status.", kind="One kind.", object="Subject's id."),
        ],
        responses=page_of("Job", JobSerializer),
        tags=["jobs"],
    )
    def get(self, request: Request) -> Response:
        """Return one page, newest first."""
        query = read_query(request, "status", "kind", "object", paged=True)
        chosen(query, "status", JobStatus.values)
        return self.page(job_list(self.actor, **query), JobSerializer)


class OneJob(Endpoint):
    """``jobs/{id}``."""

    scopes: ClassVar = {"GET": SEE_JOBS}

    @extend_schema(
        operation_id="jobs_get",
        summary="Get a job",
        description="Poll it until `status` is succeeded, failed, errored or cancelled. It needs "
        "the scope that reading its subject needs.",
        responses=JobSerializer,
        tags=["jobs"],
    )
    def get(self, request: Request, ref: str) -> Response:
        """Return it."""
        read_query(request)
        return Response(JobSerializer(access_job(self.actor, ref)).data)


urlpatterns = [
    path("teams/me", MyTeams.as_view(), name="teams-me"),
    path("tokens", Tokens.as_view(), name="tokens"),
    path("tokens/<str:ref>", OneToken.as_view(), name="token"),
    path("jobs", Jobs.as_view(), name="jobs"),
    path("jobs/<str:ref>", OneJob.as_view(), name="job"),
]
