"""Addresses of the pages."""

from __future__ import annotations

from django.urls import path, re_path

from qualityhub.dashboard.views import (
    catalogue,
    environments,
    gates,
    inspections,
    operations,
    overview,
    results,
    tokens,
    trials,
    upload,
)

app_name = "dashboard"
urlpatterns = [
    path("", overview.overview, name="overview"),
    path("domains/<str:ref>/", overview.domain, name="domain"),
    path("environments/<str:env_id>/", environments.environment, name="environment"),
    path("environments/<str:env_id>/inspect/", environments.inspect_again, name="inspect-again"),
    path("inspections/", inspections.inspections, name="inspections"),
    path("inspections/<str:insp_id>/", inspections.inspection, name="inspection"),
    path("inspections/<str:insp_id>/findings/", inspections.findings, name="inspection-findings"),
    path("inspections/<str:insp_id>/progress.json", inspections.progress, name="progress"),
    path("inspections/<str:insp_id>/cancel/", inspections.cancel, name="cancel"),
    re_path(
        r"^inspections/(?P<insp_id>[^/]+)/report\.(?P<kind>json|sarif|md)$",
        inspections.report_file,
        name="inspection-file",
    ),
    path("trials/<str:key>/", trials.trial, name="trial"),
    path("gates/", gates.gates, name="gates"),
    path("gates/<str:gate_id>/", gates.gate, name="gate"),
    path("gates/<str:gate_id>/figure.json", gates.figure, name="gate-figure"),
    path("gates/<str:gate_id>/report.json", gates.report_file, name="gate-file"),
    path("rules/", catalogue.rules, name="rules"),
    path("rules/<str:code>/", catalogue.rule, name="rule"),
    path("audits/", results.audits, name="audits"),
    path("checkpoints/", results.checkpoints, name="checkpoints"),
    path("tokens/", tokens.tokens, name="tokens"),
    path("tokens/<str:token_id>/revoke/", tokens.revoke, name="token-revoke"),
    path("workers/", operations.workers, name="workers"),
    path("upload/", upload.upload, name="upload"),
]
