"""Endpoints of admission: the manifest, questions by digest, and policies."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, Any, ClassVar

from django.http import FileResponse, HttpResponse, StreamingHttpResponse
from django.urls import URLPattern, path
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.response import Response

from qualityhub.accounts.access import access_team
from qualityhub.accounts.choices import Role, Scope
from qualityhub.api.base import Endpoint, query_parameters, read_body, read_query
from qualityhub.api.v1.inspection_schemas import (
    AdmissionPolicySerializer,
    CheckInput,
    CheckSerializer,
)
from qualityhub.engine.errors import InvalidInputError
from qualityhub.inspections.admission import admission_check
from qualityhub.inspections.manifests import manifest_file, manifest_state
from qualityhub.inspections.policies import policy_of, policy_row, policy_set, policy_table
from qualityhub.inspections.services import inspections_refresh
from qualityhub.platform.etags import caller_has
from qualityhub.registry.access import access_domain

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rest_framework.request import Request

    from qualityhub.inspections.manifests import Manifest
    from qualityhub.registry.models import Domain

CHUNK = 64 * 1024
ADMISSION = (Scope.ADMISSION_READ,)
MANIFEST_EXAMPLE = (
    '`{"schema": "qualityhub.manifest/1", "generated_at", "environments": [{"environment", '
    '"domain", "environment_id", "version", "digest", "admission", "provisional", "inspection", '
    '"tasks": [{"id", "digest", "role"}]}]}`'
)


class AdmissionManifest(Endpoint):
    """``admission/manifest``."""

    scopes: ClassVar = {"GET": ADMISSION}

    @extend_schema(
        operation_id="admission_manifest",
        summary="Get what training may use",
        description=(
            "All admitted tasks of a team, of the newest version of every environment of which "
            "something is admitted; tasks for the gate alone are never among them. "
            f"{MANIFEST_EXAMPLE}. Send the `ETag` back as `If-None-Match` and get 304 while "
            "nothing has changed; accept gzip."
        ),
        parameters=[
            *query_parameters(
                team="Slug or id of the team; may be left out by members of one team.",
                domain="Slug or id of one domain.",
            ),
            OpenApiParameter("If-None-Match", str, OpenApiParameter.HEADER),
        ],
        responses={200: OpenApiTypes.OBJECT, 304: OpenApiResponse(description="Unchanged.")},
        tags=["admission"],
    )
    def get(self, request: Request) -> HttpResponse | StreamingHttpResponse:
        """Send the manifest, unless the caller has it already."""
        query = read_query(request, "team", "domain")
        team = access_team(self.actor, query.get("team"))
        domain = (
            access_domain(self.actor, query["domain"], team=team) if "domain" in query else None
        )
        state = manifest_state(team, domain)
        packed = "gzip" in request.headers.get("Accept-Encoding", "")
        if caller_has(request, _etag(state, packed=True), _etag(state, packed=False)):
            return HttpResponse(status=304, headers=_headers(state, packed=packed))
        state, file = manifest_file(state)
        response: StreamingHttpResponse
        if packed:
            response = FileResponse(file.open("rb"), content_type="application/json")
            response.headers.pop("Content-Disposition", None)
            response["Content-Encoding"] = "gzip"
            response["Content-Length"] = str(file.stat().st_size)
        else:
            response = StreamingHttpResponse(_unpacked(file), content_type="application/json")
        for name, value in _headers(state, packed=packed).items():
            response[name] = value
        return response


class AdmissionCheck(Endpoint):
    """``admission/check``."""

    scopes: ClassVar = {"POST": ADMISSION}

    @extend_schema(
        operation_id="admission_check",
        summary="Ask whether digests are admitted",
        description="Of versions or tasks, 512 at most. Changes nothing.",
        request=CheckInput,
        responses=CheckSerializer,
        tags=["admission"],
    )
    def post(self, request: Request) -> Response:
        """Answer in the order asked."""
        digests = read_body(CheckInput, request)["digests"]
        answers = admission_check(self.actor.team_ids, digests)
        return Response(
            {
                "results": [
                    {
                        "digest": answer.digest,
                        "admitted": answer.admitted,
                        "reason": answer.reason,
                    }
                    for answer in answers
                ]
            }
        )


class DomainPolicy(Endpoint):
    """``domains/{ref}/admission-policy``."""

    scopes: ClassVar = {"GET": (Scope.ENVIRONMENTS_READ,), "PUT": (Scope.INSPECTIONS_WRITE,)}

    @extend_schema(
        operation_id="domains_admission_policy_get",
        summary="Get the admission policy of a domain",
        responses=AdmissionPolicySerializer,
        tags=["admission"],
    )
    def get(self, request: Request, ref: str) -> Response:
        """Return the version in force."""
        read_query(request)
        return Response(_policy(access_domain(self.actor, ref)))

    @extend_schema(
        operation_id="domains_admission_policy_set",
        summary="Put a new version of a domain's admission policy in force",
        description=(
            "The body is the `[admission]` table of a policy file. What was inspected already is "
            "judged again by it, from stored results where they suffice."
        ),
        request=OpenApiTypes.OBJECT,
        responses=AdmissionPolicySerializer,
        tags=["admission"],
    )
    def put(self, request: Request, ref: str) -> Response:
        """Set it."""
        domain = access_domain(self.actor, ref, Role.GATEKEEPER)
        table = request.data
        if not isinstance(table, dict):
            raise InvalidInputError("input.wrong_type", "A policy is a table of keys and values.")
        before = policy_row(domain)
        row = policy_set(domain=domain, table=table, actor=str(self.actor))
        if before is None or row.pk != before.pk:
            inspections_refresh(domain, actor=str(self.actor))
        return Response(_policy(domain))


def _unpacked(file: Path) -> Iterator[bytes]:
    """Yield the document piece by piece.

    Not as a file: servers send the bytes behind a file's descriptor, here the compressed ones.
    """
    with gzip.open(file, "rb") as document:
        while piece := document.read(CHUNK):
            yield piece


def _policy(domain: Domain) -> dict[str, Any]:
    row = policy_row(domain)
    policy = policy_of(domain)
    document = {
        "domain": domain.slug,
        "number": row.number if row else 0,
        "version": policy.version,
        "policy": policy_table(policy),
        "created_by": row.created_by if row else None,
        "created_at": row.created_at if row else None,
    }
    return dict(AdmissionPolicySerializer(document).data)


def _etag(state: Manifest, *, packed: bool) -> str:
    # Two encodings are two representations: a strong validator tells them apart.
    return state.etag[:-1] + '-gzip"' if packed else state.etag


def _headers(state: Manifest, *, packed: bool) -> dict[str, str]:
    return {
        "ETag": _etag(state, packed=packed),
        "Vary": "Accept-Encoding, Authorization, Cookie",
        "Cache-Control": "private, no-cache",
    }


urlpatterns: list[URLPattern] = [
    path("admission/manifest", AdmissionManifest.as_view(), name="admission-manifest"),
    path("admission/check", AdmissionCheck.as_view(), name="admission-check"),
    path(
        "domains/<str:ref>/admission-policy", DomainPolicy.as_view(), name="domain-admission-policy"
    ),
]
