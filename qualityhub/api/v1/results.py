"""Endpoints of checkpoints, evaluation runs and their rollouts."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from django.conf import settings
from django.urls import URLPattern, path
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.exceptions import UnsupportedMediaType
from rest_framework.response import Response

from qualityhub.accounts.access import Actor, access_team
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
from qualityhub.api.v1.gates_schemas import (
    CheckpointInput,
    CheckpointSerializer,
    EvalRunInput,
    EvalRunSerializer,
    IngestSerializer,
)
from qualityhub.engine.errors import ForbiddenError
from qualityhub.gates.access import access_checkpoint, access_run
from qualityhub.gates.choices import RunStatus
from qualityhub.gates.selectors import checkpoint_list, eval_run_list
from qualityhub.gates.services import (
    checkpoint_create,
    eval_run_create,
    eval_run_seal,
    rollouts_ingest,
)
from qualityhub.gates.stream import RowStream
from qualityhub.platform.idempotency import idempotent
from qualityhub.registry.access import access_domain
from qualityhub.registry.selectors import domain_list
from qualityhub.registry.services import domain_ensure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rest_framework.request import Request

    from qualityhub.gates.models import EvalRun

READ = (Scope.GATES_READ,)
SEND = (Scope.RESULTS_WRITE,)
MEDIA_TYPES = frozenset(
    {"application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines"}
)
TEAM = "Slug or id of one team; left out, all of yours."


def teams_of(actor: Actor, query: Mapping[str, str]) -> list[int]:
    """Return the primary keys of the teams a list shows: the one named, or all of the actor's."""
    return [access_team(actor, query["team"]).pk] if "team" in query else actor.team_ids


class Checkpoints(Endpoint):
    """``checkpoints``."""

    scopes: ClassVar = {"GET": READ, "POST": SEND}

    @extend_schema(
        operation_id="checkpoints_list",
        summary="List checkpoints",
        parameters=[
            *PAGING_PARAMETERS,
            *query_parameters(team=TEAM, name="Exact name.", lineage="Exact lineage."),
        ],
        responses=page_of("Checkpoint", CheckpointSerializer),
        tags=["results"],
    )
    def get(self, request: Request) -> Response:
        """Return one page, newest first."""
        query = read_query(request, "team", "name", "lineage", paged=True)
        rows = checkpoint_list(teams_of(self.actor, query))
        wanted = {name: query[name] for name in ("name", "lineage") if name in query}
        return self.page(rows.filter(**wanted), CheckpointSerializer)

    @extend_schema(
        operation_id="checkpoints_create",
        summary="Create a checkpoint",
        parameters=[IDEMPOTENCY_PARAMETER],
        request=CheckpointInput,
        responses={201: CheckpointSerializer},
        tags=["results"],
    )
    def post(self, request: Request) -> Response:
        """Create one; its name is unique in the team."""
        body = read_body(CheckpointInput, request)

        def work() -> Response:
            team = access_team(self.actor, body.pop("team", None), Role.CONTRIBUTOR)
            parent = body.pop("parent", None)
            checkpoint = checkpoint_create(
                team=team,
                parent=access_checkpoint(self.actor, parent) if parent else None,
                actor=str(self.actor),
                **body,
            )
            checkpoint.refresh_from_db(fields=["created_at"])
            data = CheckpointSerializer(checkpoint).data
            location = f"/api/v1/checkpoints/{checkpoint.public_id}"
            return Response(data, status=201, headers={"Location": location})

        return self.once(work)


class OneCheckpoint(Endpoint):
    """``checkpoints/{id}``."""

    scopes: ClassVar = {"GET": READ}

    @extend_schema(
        operation_id="checkpoints_get",
        summary="Get a checkpoint",
        responses=CheckpointSerializer,
        tags=["results"],
    )
    def get(self, request: Request, ref: str) -> Response:
        """Return it."""
        read_query(request)
        return Response(CheckpointSerializer(access_checkpoint(self.actor, ref)).data)


class EvalRuns(Endpoint):
    """``eval-runs``."""

    scopes: ClassVar = {"GET": READ, "POST": SEND}

    @extend_schema(
        operation_id="eval_runs_list",
        summary="List evaluation runs",
        parameters=[
            *PAGING_PARAMETERS,
            *query_parameters(
                team=TEAM, checkpoint="Id.", name="Exact name.", status="`open` or `sealed`."
            ),
        ],
        responses=page_of("EvalRun", EvalRunSerializer),
        tags=["results"],
    )
    def get(self, request: Request) -> Response:
        """Return one page, newest first."""
        query = read_query(request, "team", "checkpoint", "name", "status", paged=True)
        rows = eval_run_list(teams_of(self.actor, query))
        if "checkpoint" in query:
            rows = rows.filter(checkpoint=access_checkpoint(self.actor, query["checkpoint"]))
        if "name" in query:
            rows = rows.filter(name=query["name"])
        if status := chosen(query, "status", RunStatus.values):
            rows = rows.filter(status=status)
        return self.page(rows, EvalRunSerializer)

    @extend_schema(
        operation_id="eval_runs_create",
        summary="Open an evaluation run",
        parameters=[IDEMPOTENCY_PARAMETER],
        request=EvalRunInput,
        responses={201: EvalRunSerializer},
        tags=["results"],
    )
    def post(self, request: Request) -> Response:
        """Open a run for the rollouts of one checkpoint."""
        body = read_body(EvalRunInput, request)

        def work() -> Response:
            checkpoint = access_checkpoint(self.actor, body.pop("checkpoint"), Role.CONTRIBUTOR)
            ref = body.pop("domain", None)
            run = eval_run_create(
                checkpoint=checkpoint,
                domain=access_domain(self.actor, ref, team=checkpoint.team) if ref else None,
                **body,
            )
            run.refresh_from_db(fields=["created_at"])
            data = EvalRunSerializer(run).data
            location = f"/api/v1/eval-runs/{run.public_id}"
            return Response(data, status=201, headers={"Location": location})

        return self.once(work)


class OneEvalRun(Endpoint):
    """``eval-runs/{id}``."""

    scopes: ClassVar = {"GET": READ}

    @extend_schema(
        operation_id="eval_runs_get",
        summary="Get an evaluation run with its counters",
        responses=EvalRunSerializer,
        tags=["results"],
    )
    def get(self, request: Request, ref: str) -> Response:
        """Return it."""
        read_query(request)
        return Response(EvalRunSerializer(access_run(self.actor, ref)).data)


class SealEvalRun(Endpoint):
    """``eval-runs/{id}/seal``."""

    scopes: ClassVar = {"POST": SEND}

    @extend_schema(
        operation_id="eval_runs_seal",
        summary="Seal an evaluation run",
        parameters=[IDEMPOTENCY_PARAMETER],
        request=None,
        responses=EvalRunSerializer,
        tags=["results"],
    )
    def post(self, request: Request, ref: str) -> Response:
        """Close a run for good; gates compare sealed runs. Sealing twice changes nothing."""
        read_query(request)

        def work() -> Response:
            run = access_run(self.actor, ref, Role.CONTRIBUTOR)
            return Response(EvalRunSerializer(eval_run_seal(run=run, actor=str(self.actor))).data)

        return self.once(work)


class Rollouts(Endpoint):
    """``eval-runs/{id}/rollouts``."""

    scopes: ClassVar = {"POST": SEND}

    @extend_schema(
        operation_id="eval_runs_rollouts",
        summary="Send rollouts",
        request={"application/x-ndjson": OpenApiTypes.BINARY},
        parameters=[
            IDEMPOTENCY_PARAMETER,
            OpenApiParameter("Content-Encoding", str, OpenApiParameter.HEADER, enum=["gzip"]),
            *query_parameters(
                create_domains="`true` makes the domains that rows name and the team lacks."
            ),
        ],
        responses=IngestSerializer,
        tags=["results"],
    )
    def post(self, request: Request, ref: str) -> Response:
        """Store rollouts: one JSON object per line, at most 64 MiB decoded, whole or not at all.

        A row's identity is (run, domain, task, attempt): the same content again changes nothing,
        different content is a conflict, and the first wins.
        """
        query = read_query(request, "create_domains")
        run = access_run(self.actor, ref, Role.CONTRIBUTOR)
        create = chosen(query, "create_domains", ["true", "false"]) == "true"
        if create and not self.actor.has_scope(Scope.ENVIRONMENTS_WRITE):
            raise ForbiddenError(
                "access.scope",
                f"create_domains needs the scope {Scope.ENVIRONMENTS_WRITE.value} too.",
                "Create the domains first, or use a token that has it.",
            )
        stream = _row_stream(request)
        try:
            return idempotent(
                request,
                self.actor.key,
                lambda: _store(self.actor, run, stream, create=create),
                digest=stream.digest_of_all,
            )
        except Exception:
            stream.drain()
            raise


def _store(actor: Actor, run: EvalRun, stream: RowStream, *, create: bool) -> Response:
    team = run.checkpoint.team

    def domain_create(slug: str) -> int:
        return int(domain_ensure(team=team, slug=slug, actor=str(actor)).pk)

    result = rollouts_ingest(
        run=run,
        stream=stream,
        domains=dict(domain_list(actor, team=team).values_list("slug", "pk")),
        domain_create=domain_create if create else None,
    )
    return Response(result.as_json())


def _row_stream(request: Request) -> RowStream:
    """Return the body as it arrives, also where the sender does not know its length."""
    kind = request.content_type.partition(";")[0].strip().lower()
    if kind not in MEDIA_TYPES:
        raise UnsupportedMediaType(
            kind, "Send rows as Content-Type: application/x-ndjson, one JSON object per line."
        )
    http = request._request  # noqa: SLF001 - the framework's own way to the unparsed request.
    length = http.META.get("CONTENT_LENGTH") or ""
    read, expected = http.read, None
    if length.isascii() and length.isdigit():
        expected = int(length)
    elif http.META.get("wsgi.input_terminated"):
        # Chunked: Django takes a body without a length for an empty one.
        read = http.META["wsgi.input"].read
    return RowStream(
        read,
        request.headers.get("Content-Encoding", ""),
        limit=settings.QH_MAX_ROWS_BYTES,
        expected=expected,
    )


urlpatterns: list[URLPattern] = [
    path("checkpoints", Checkpoints.as_view(), name="checkpoints"),
    path("checkpoints/<str:ref>", OneCheckpoint.as_view(), name="checkpoint"),
    path("eval-runs", EvalRuns.as_view(), name="eval-runs"),
    path("eval-runs/<str:ref>", OneEvalRun.as_view(), name="eval-run"),
    path("eval-runs/<str:ref>/seal", SealEvalRun.as_view(), name="eval-run-seal"),
    path("eval-runs/<str:ref>/rollouts", Rollouts.as_view(), name="eval-run-rollouts"),
]
