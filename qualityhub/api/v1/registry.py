"""Endpoints of domains, environments, versions and tasks."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING, Any, ClassVar

from django.conf import settings
from django.http import FileResponse, HttpResponse
from django.urls import path
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.parsers import MultiPartParser
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
from qualityhub.engine.errors import (
    ForbiddenError,
    InvalidInputError,
    LimitExceededError,
    NotFoundError,
    QualityHubError,
)
from qualityhub.inspections.choices import Trigger
from qualityhub.inspections.services import inspection_start
from qualityhub.platform.blobs import blob_store
from qualityhub.platform.etags import caller_has
from qualityhub.platform.parsers import StrictJSONParser
from qualityhub.registry import selectors, services
from qualityhub.registry.access import access_domain, access_environment, access_version
from qualityhub.registry.choices import Admission, SourceKind, TaskRole

if TYPE_CHECKING:
    from rest_framework.request import Request

    from qualityhub.accounts.access import Actor
    from qualityhub.registry.models import EnvironmentVersion

READ = (Scope.ENVIRONMENTS_READ,)
WRITE = (Scope.ENVIRONMENTS_WRITE,)
FORM_SLACK = 64 * 1024
KINDS = ((b"PK", "zip"), (b"\x1f\x8b", "tar.gz"))


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


class VersionSerializer(serializers.Serializer[Any]):
    """A version."""

    id = serializers.CharField(source="public_id")
    environment = serializers.CharField(source="environment.public_id")
    domain = serializers.CharField(source="environment.domain.slug")
    name = serializers.CharField(source="environment.slug")
    digest = serializers.CharField()
    adapter = serializers.CharField()
    family = serializers.CharField()
    tasks = serializers.IntegerField(source="task_count")
    source_kind = serializers.ChoiceField(SourceKind.choices)
    source = serializers.CharField()  # type: ignore[assignment] # A member of that name.
    admission = serializers.ChoiceField(
        Admission.choices, allow_null=True, help_text="Null: no inspection has ended yet."
    )
    admission_changed_at = serializers.DateTimeField(allow_null=True)
    created_by = serializers.CharField()
    created_at = serializers.DateTimeField()
    url = serializers.SerializerMethodField()
    archive = serializers.SerializerMethodField()

    def get_url(self, version: Any) -> str:
        """Return where it is."""
        return f"/api/v1/versions/{version.public_id}"

    def get_archive(self, version: Any) -> str | None:
        """Return where its files are."""
        return f"/api/v1/versions/{version.digest}/archive" if version.archive_sha256 else None


class RegisteredSerializer(VersionSerializer):
    """A version as its upload is answered."""

    inspection = serializers.CharField(
        allow_null=True, help_text="Id of the inspection that was started with it."
    )


class VersionReference(StrictSerializer):
    """A version without files of its own."""

    source = serializers.CharField(  # type: ignore[assignment] # A member of that name.
        max_length=500, help_text="E.g. `gymnasium:CartPole-v1`."
    )
    inspect = serializers.BooleanField(
        required=False,
        default=False,
        help_text="Start an inspection, unless it was judged already.",
    )


class VersionUpload(StrictSerializer):
    """A version from an archive."""

    archive = serializers.FileField(help_text="zip, tar or tar.gz.", allow_empty_file=True)
    adapter = serializers.CharField(max_length=60, required=False, help_text="Forces one format.")
    entry = serializers.CharField(
        max_length=500, required=False, help_text="`path/to/file.py:ClassName` in the archive."
    )
    inspect = serializers.BooleanField(
        required=False,
        default=False,
        help_text="Start an inspection, unless it was judged already.",
    )


class TaskSerializer(serializers.Serializer[Any]):
    """A task of a version."""

    id = serializers.CharField(source="task_id")
    digest = serializers.CharField()
    layers = serializers.DictField(child=serializers.CharField())
    role = serializers.ChoiceField(TaskRole.choices)
    admitted = serializers.BooleanField(allow_null=True)


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
            return _created(DomainSerializer(domain).data, f"domains/{domain.public_id}")

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
            return _created(
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


class Versions(Endpoint):
    """``environments/{id}/versions``."""

    scopes: ClassVar = {"GET": READ, "POST": WRITE}
    parser_classes = (StrictJSONParser, MultiPartParser)

    @extend_schema(
        operation_id="versions_list",
        summary="List the versions of an environment",
        parameters=PAGING_PARAMETERS,
        responses=page_of("Version", VersionSerializer),
        tags=["registry"],
    )
    def get(self, request: Request, ref: str) -> Response:
        """Return one page, newest first."""
        read_query(request, paged=True)
        environment = access_environment(self.actor, ref)
        return self.page(selectors.version_list(environment), VersionSerializer)

    @extend_schema(
        operation_id="versions_create",
        summary="Upload a version",
        description=(
            "Multipart with an `archive`, or JSON with a `source` such as `gymnasium:CartPole-v1`. "
            "Nothing of it runs here. The same content again answers 200 with the version that is "
            "there; a package that cannot be read answers 422 and stores nothing."
        ),
        parameters=[IDEMPOTENCY_PARAMETER],
        request={
            "multipart/form-data": VersionUpload,
            "application/json": VersionReference,
        },
        responses={201: RegisteredSerializer, 200: RegisteredSerializer},
        tags=["registry"],
    )
    def post(self, request: Request, ref: str) -> Response:
        """Register one."""
        environment = access_environment(self.actor, ref, Role.CONTRIBUTOR)
        _check_length(request)
        if str(request.content_type).startswith("multipart/"):
            _check_parts(request)
            body = read_body(VersionUpload, request)
            upload = body.pop("archive")
            given = {**body, "archive": upload.file, "filename": upload.name}
        else:
            given = read_body(VersionReference, request)
        inspect = given.pop("inspect")
        if inspect:
            _check_may_inspect(self.actor)

        def work() -> Response:
            registered = services.version_register(
                environment=environment, actor=str(self.actor), **given
            )
            version = registered.version
            inspection = None
            if inspect and version.admission is None:
                inspection = inspection_start(
                    version=version, actor=str(self.actor), trigger=Trigger.UPLOAD
                )
            document = {
                **VersionSerializer(version).data,
                "inspection": inspection.public_id if inspection else None,
            }
            if registered.created:
                return _created(document, f"versions/{version.public_id}")
            return Response(document, headers={"Location": document["url"]})

        return self.once(work)


class OneVersion(Endpoint):
    """``versions/{ref}``."""

    scopes: ClassVar = {"GET": READ}

    @extend_schema(
        operation_id="versions_get",
        summary="Get a version by id or digest",
        responses=VersionSerializer,
        tags=["registry"],
    )
    def get(self, request: Request, ref: str) -> Response:
        """Return it."""
        read_query(request)
        return Response(VersionSerializer(access_version(self.actor, ref)).data)


class VersionTasks(Endpoint):
    """``versions/{ref}/tasks``."""

    scopes: ClassVar = {"GET": READ}

    @extend_schema(
        operation_id="versions_tasks",
        summary="List the tasks of a version",
        parameters=PAGING_PARAMETERS,
        responses=page_of("Task", TaskSerializer),
        tags=["registry"],
    )
    def get(self, request: Request, ref: str) -> Response:
        """Return one page, in the owner's order."""
        read_query(request, paged=True)
        version = access_version(self.actor, ref)
        return self.page(selectors.task_list(version), TaskSerializer, ("position",))


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


class VersionArchive(Endpoint):
    """``versions/{ref}/archive``."""

    scopes: ClassVar = {"GET": (Scope.ENVIRONMENTS_READ, Scope.ADMISSION_READ)}

    @extend_schema(
        operation_id="versions_archive",
        summary="Download the files of a version, by digest or id",
        description="The archive as it was uploaded, verified before the first byte is sent.",
        responses={
            (200, "application/octet-stream"): OpenApiResponse(
                OpenApiTypes.BINARY, description="The archive."
            ),
            304: OpenApiResponse(description="Unchanged since the ETag given by If-None-Match."),
        },
        tags=["registry"],
    )
    def get(self, request: Request, ref: str) -> HttpResponse | FileResponse:
        """Send it."""
        read_query(request)
        version = access_version(self.actor, ref)
        if not version.archive_sha256:
            raise NotFoundError(
                "version.no_archive",
                "This version has no files: it names a source.",
                f"Install {version.source} instead.",
            )
        etag = f'"{version.archive_sha256}"'
        if caller_has(request, etag):
            return HttpResponse(status=304, headers={"ETag": etag})
        return _archive(version, etag)


def _archive(version: EnvironmentVersion, etag: str) -> FileResponse:
    file = tempfile.SpooledTemporaryFile(max_size=8 * 2**20)  # noqa: SIM115 - the response closes it.
    try:
        blob_store().copy_to(version.archive_sha256, file)
    except QualityHubError:
        file.close()
        raise
    file.seek(0)
    head = file.read(2)
    file.seek(0)
    kind = next((kind for magic, kind in KINDS if head == magic), "tar")
    name = f"{version.environment.slug}-{version.digest.rpartition(':')[2][:12]}.{kind}"
    response = FileResponse(
        file, as_attachment=True, filename=name, content_type="application/octet-stream"
    )
    response["Content-Length"] = str(version.archive_bytes)
    response["ETag"] = etag
    return response


def _check_may_inspect(actor: Actor) -> None:
    if not actor.has_scope(Scope.INSPECTIONS_WRITE):
        raise ForbiddenError(
            "access.scope",
            f"The token lacks the scope {Scope.INSPECTIONS_WRITE}.",
            "Create a token that has it, or leave out inspect.",
        )


def _check_parts(request: Request) -> None:
    """Refuse a form that says two things; the framework would take the last."""
    form: Any = request.data
    for name, values in form.lists():
        if len(values) > 1:
            raise InvalidInputError(
                "input.repeated_part", f"The form has the part {name[:60]!a} more than once."
            )


def _check_length(request: Request) -> None:
    """Refuse by the announced length, before the body is read to disk."""
    announced = request.META.get("CONTENT_LENGTH") or "0"
    limit = settings.QH_MAX_UPLOAD_BYTES + FORM_SLACK
    if announced.isdigit() and int(announced) > limit:
        raise LimitExceededError(
            "input.too_large",
            f"The body has {announced} bytes; archives up to {settings.QH_MAX_UPLOAD_BYTES} are "
            "accepted.",
            "Leave out what the environment does not need.",
        )


def _created(document: Any, where: str) -> Response:
    return Response(document, status=201, headers={"Location": f"/api/v1/{where}"})


urlpatterns = [
    path("domains", Domains.as_view(), name="domains"),
    path("domains/<str:ref>", OneDomain.as_view(), name="domain"),
    path("environments", Environments.as_view(), name="environments"),
    path("environments/<str:ref>", OneEnvironment.as_view(), name="environment"),
    path("environments/<str:ref>/versions", Versions.as_view(), name="versions"),
    path("environments/<str:ref>/task-roles", TaskRoles.as_view(), name="task-roles"),
    path("versions/<str:ref>", OneVersion.as_view(), name="version"),
    path("versions/<str:ref>/tasks", VersionTasks.as_view(), name="version-tasks"),
    path("versions/<str:ref>/archive", VersionArchive.as_view(), name="version-archive"),
]
