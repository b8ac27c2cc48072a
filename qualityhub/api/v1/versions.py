"""Endpoints of versions: upload, look up, tasks, archive."""

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

from qualityhub.accounts.choices import Role, Scope
from qualityhub.api.base import (
    IDEMPOTENCY_PARAMETER,
    PAGING_PARAMETERS,
    Endpoint,
    StrictSerializer,
    page_of,
    read_body,
    read_query,
)
from qualityhub.api.v1.registry import READ, WRITE, created
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
from qualityhub.registry.access import access_environment, access_files, access_version
from qualityhub.registry.choices import Admission, SourceKind, TaskRole

if TYPE_CHECKING:
    from rest_framework.request import Request

    from qualityhub.accounts.access import Actor
    from qualityhub.registry.models import EnvironmentVersion

FORM_SLACK = 64 * 1024
KINDS = ((b"PK", "zip"), (b"\x1f\x8b", "tar.gz"))


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
                return created(document, f"versions/{version.public_id}")
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


class VersionArchive(Endpoint):
    """``versions/{ref}/archive``."""

    scopes: ClassVar = {"GET": (Scope.ENVIRONMENTS_READ, Scope.ADMISSION_READ)}

    @extend_schema(
        operation_id="versions_archive",
        summary="Download the files of a version, by digest or id",
        description=(
            "The archive as it was uploaded, verified before the first byte is sent. A token "
            "without environments:read gets versions of which something is admitted; others do "
            "not exist for it."
        ),
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
        version = access_files(self.actor, ref)
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


urlpatterns = [
    path("environments/<str:ref>/versions", Versions.as_view(), name="versions"),
    path("versions/<str:ref>", OneVersion.as_view(), name="version"),
    path("versions/<str:ref>/tasks", VersionTasks.as_view(), name="version-tasks"),
    path("versions/<str:ref>/archive", VersionArchive.as_view(), name="version-archive"),
]
