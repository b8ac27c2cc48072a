"""Addresses below ``/api/``."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, include, path
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView

from qualityhub.api.v1 import (
    accounts,
    admission,
    audits,
    gates,
    inspections,
    registry,
    trials,
    versions,
    waivers,
    workers,
)

app_name = "api"
v1: list[URLPattern | URLResolver] = [
    *accounts.urlpatterns,
    *registry.urlpatterns,
    *versions.urlpatterns,
    *inspections.urlpatterns,
    *trials.urlpatterns,
    *admission.urlpatterns,
    *waivers.urlpatterns,
    *audits.urlpatterns,
    *gates.urlpatterns,
    *workers.urlpatterns,
]
urlpatterns = [
    path("v1/", include(v1)),
    path("schema", SpectacularAPIView.as_view(), name="schema"),
    path("docs", SpectacularSwaggerSplitView.as_view(url_name="api:schema"), name="docs"),
]
