"""Endpoints of stored trials: how one ended, and what it wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from django.urls import URLPattern, path
from drf_spectacular.utils import extend_schema, inline_serializer
from rest_framework import serializers
from rest_framework.response import Response

from qualityhub.accounts.choices import Scope
from qualityhub.api.base import Endpoint, read_query
from qualityhub.engine.trials.evidence import ANSWER_KEY, EVIDENCE_SCHEMA, TRIAL_SCHEMA
from qualityhub.inspections.access import access_trial
from qualityhub.inspections.evidence import evidence_shown, trial_shown

if TYPE_CHECKING:
    from rest_framework.request import Request

READ = (Scope.ENVIRONMENTS_READ,)


class ObservationSerializer(serializers.Serializer[Any]):
    """What one ask showed."""

    ask = serializers.DictField(
        allow_null=True,
        help_text="What it answers in the newest inspection of the team: task, probe, hash_seed, "
        "seed, repeat, and what else was changed around it; null where no inspection has it.",
    )
    outcome = serializers.CharField()
    reward = serializers.JSONField(help_text="Number, text, or null where there is none.")
    reward_type = serializers.CharField()
    detail = serializers.CharField()
    facts = serializers.DictField()
    served = serializers.BooleanField(help_text="Whether a fork server made its world.")


class EndSerializer(serializers.Serializer[Any]):
    """How the program ended."""

    exit_code = serializers.IntegerField(allow_null=True)
    signal = serializers.IntegerField(allow_null=True)
    timed_out = serializers.BooleanField()
    out_of_memory = serializers.BooleanField()


class UseSerializer(serializers.Serializer[Any]):
    """What it used."""

    seconds = serializers.FloatField()
    cpu_seconds = serializers.FloatField()
    peak_memory_bytes = serializers.IntegerField(help_text="0 where it is not known.")
    dropped_bytes = serializers.IntegerField(help_text="Output beyond the sandbox's limit.")


class PartSerializer(serializers.Serializer[Any]):
    """One output. Bytes that are no UTF-8 are written as backslash escapes."""

    name = serializers.CharField(help_text="stdout, stderr, or the path of a collected file.")
    what = serializers.CharField(help_text="In words, for files of our own.")
    bytes = serializers.IntegerField(help_text="How much there was.")
    left_out = serializers.IntegerField(help_text="Bytes that are missing between head and tail.")
    head = serializers.CharField()
    tail = serializers.CharField()


CLASS = serializers.ChoiceField(
    [ANSWER_KEY], help_text="It may quote hidden tests and answers, and is part of no export."
)
TRIAL = inline_serializer(
    "Trial",
    {
        "schema": serializers.ChoiceField([TRIAL_SCHEMA]),
        "trial": serializers.CharField(help_text="Its key."),
        "class": CLASS,
        "observations": ObservationSerializer(many=True),
        "ended": EndSerializer(),
        "resources": UseSerializer(),
        "output_bytes": serializers.DictField(child=serializers.IntegerField()),
        "inspections": serializers.ListField(
            child=serializers.CharField(), help_text="The newest that it answered."
        ),
        "stored_at": serializers.DateTimeField(),
        "evidence": serializers.CharField(help_text="Where its outputs are."),
    },
)
EVIDENCE = inline_serializer(
    "Evidence",
    {
        "schema": serializers.ChoiceField([EVIDENCE_SCHEMA]),
        "trial": serializers.CharField(help_text="Its key."),
        "class": CLASS,
        "state": serializers.ChoiceField(
            ["whole", "kept", "preview"],
            help_text="whole: it wrote no more; kept: as stored; preview: no more is left.",
        ),
        "dropped_bytes": serializers.IntegerField(),
        "parts": PartSerializer(many=True),
    },
)


class OneTrial(Endpoint):
    """``trials/{key}``."""

    scopes: ClassVar = {"GET": READ}

    @extend_schema(
        operation_id="trials_get",
        summary="Get a stored trial",
        description=(
            "How it ended, what it showed and what it used. Findings name the keys of their "
            "trials. A key is no permission: other teams are told that there is no such trial."
        ),
        responses=TRIAL,
        tags=["inspections"],
    )
    def get(self, request: Request, key: str) -> Response:
        """Return it, without its outputs."""
        read_query(request)
        record = access_trial(self.actor, key)
        return Response(
            {**trial_shown(record), "evidence": f"/api/v1/trials/{record.key}/evidence"}
        )


class TrialEvidence(Endpoint):
    """``trials/{key}/evidence``."""

    scopes: ClassVar = {"GET": READ}

    @extend_schema(
        operation_id="trials_evidence",
        summary="Get what a stored trial wrote",
        description="Its output streams and collected files, as far as they were kept.",
        responses=EVIDENCE,
        tags=["inspections"],
    )
    def get(self, request: Request, key: str) -> Response:
        """Return its outputs."""
        read_query(request)
        return Response(evidence_shown(access_trial(self.actor, key)))


urlpatterns: list[URLPattern] = [
    path("trials/<str:key>", OneTrial.as_view(), name="trial"),
    path("trials/<str:key>/evidence", TrialEvidence.as_view(), name="trial-evidence"),
]
