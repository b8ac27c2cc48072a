"""All addresses."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path

from qualityhub.platform import health

handler400 = "qualityhub.platform.problems.bad_request_page"
handler403 = "qualityhub.platform.problems.forbidden_page"
handler404 = "qualityhub.platform.problems.not_found_page"
handler500 = "qualityhub.platform.problems.server_error_page"

urlpatterns = [
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
    path("admin/", admin.site.urls),
    path("api/", include("qualityhub.api.urls")),
    path("", include("qualityhub.accounts.urls")),
    path("", include("qualityhub.dashboard.urls")),
]
