"""The web application for a WSGI server."""

from __future__ import annotations

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "qualityhub.settings")

application = get_wsgi_application()

from qualityhub.platform.checks import refuse_unfit_settings  # noqa: E402 - needs Django set up.

refuse_unfit_settings()
