"""The endpoint of workers: for operators, since host names and free labels are theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from django.urls import URLPattern, path
from drf_spectacular.utils import extend_schema, inline_serializer
from rest_framework import serializers
from rest_framework.response import Response

from qualityhub.accounts.access import check_operator
from qualityhub.accounts.choices import Scope
from qualityhub.api.base import Endpoint, read_query
from qualityhub.inspections.choices import BatchKind
from qualityhub.inspections.workers import worker_states

if TYPE_CHECKING:
    from rest_framework.request import Request


class HeldSerializer(serializers.Serializer[Any]):
    """A batch that a worker does now."""

    kind = serializers.ChoiceField(BatchKind.choices)
    inspection = serializers.CharField(source="inspection.public_id")
    domain = serializers.CharField(source="inspection.version.environment.domain.slug")
    trials = serializers.IntegerField(source="trial_count")
    since = serializers.DateTimeField(source="leased_at")


class WorkerSerializer(serializers.Serializer[Any]):
    """A worker, what it can do, and what it does."""

    name = serializers.CharField(source="worker.name")
    live = serializers.BooleanField(help_text="Seen within half a minute.")
    version = serializers.CharField(source="worker.version")
    processes = serializers.IntegerField(
        source="worker.processes", help_text="Batches that it does at once."
    )
    arch = serializers.CharField(source="offer.arch")
    sandbox = serializers.CharField(
        source="offer.provider", help_text="Provider that works there; empty for none."
    )
    ownership = serializers.BooleanField(
        source="offer.ownership", help_text="Whether file owners are real in its sandbox."
    )
    engine = serializers.BooleanField(
        source="offer.engine", help_text="Whether a container engine answers there."
    )
    gpus = serializers.IntegerField(source="offer.gpus")
    memory_mib = serializers.IntegerField(source="offer.memory_mib")
    cpus = serializers.IntegerField(source="offer.cpus")
    pythons = serializers.ListField(source="offer.pythons", child=serializers.CharField())
    labels = serializers.DictField(source="offer.labels", child=serializers.CharField())
    batches = HeldSerializer(many=True)
    batches_per_minute = serializers.FloatField(
        source="per_minute", help_text="Over the last five minutes."
    )
    started_at = serializers.DateTimeField(source="worker.started_at")
    seen_at = serializers.DateTimeField(source="worker.seen_at")


class Workers(Endpoint):
    """``workers``."""

    scopes: ClassVar = {"GET": (Scope.ADMIN,)}

    @extend_schema(
        operation_id="workers_list",
        summary="List workers",
        description=(
            "For operators: the workers of the last day, live ones first. A token needs the scope "
            "`admin` and an operator as its owner."
        ),
        responses=inline_serializer("WorkerList", {"results": WorkerSerializer(many=True)}),
        tags=["operations"],
    )
    def get(self, request: Request) -> Response:
        """Return all of them."""
        read_query(request)
        check_operator(self.actor)
        return Response({"results": WorkerSerializer(worker_states(), many=True).data})


urlpatterns: list[URLPattern] = [path("workers", Workers.as_view(), name="workers")]
