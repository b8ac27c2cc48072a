"""System checks of the settings: each with an id, a cause and a fix."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, register
from django.core.checks import Warning as CheckWarning

from qualityhub.env import SettingsError


@register()
def settings_check(**_: Any) -> list[CheckMessage]:
    """Say what is set but probably not meant."""
    found: list[CheckMessage] = [
        CheckWarning(
            f"{name} is set, but no such setting exists.",
            hint=f"Did you mean {near}?",
            id="qualityhub.W001",
        )
        for name, near in settings.ENV.near_misses()
    ]
    if settings.QH_PUBLIC_URL.startswith("http://") and not any(
        settings.QH_PUBLIC_URL.startswith(f"http://{host}")
        for host in ("127.0.0.1", "localhost", "[::1]")
    ):
        found.append(
            CheckWarning(
                "QH_PUBLIC_URL is reachable from other machines without https.",
                hint="Put a proxy with TLS in front and write QH_PUBLIC_URL=https://…",
                id="qualityhub.W002",
            )
        )
    return found


def refuse_unfit_settings() -> None:
    """Stop a server process whose settings cannot serve anybody.

    Raises:
        SettingsError: No secret key, or one too short to sign sessions with.
    """
    if settings.DEBUG:
        return
    fix = (
        "Set QH_SECRET_KEY_FILE to a file made by: "
        "python -c 'import secrets; print(secrets.token_urlsafe(50))'"
    )
    if settings.QH_SECRET_KEY_IS_EPHEMERAL:
        raise SettingsError("settings.no_secret_key", "QH_SECRET_KEY is not set.", fix)
    if len(settings.SECRET_KEY) < 40:
        raise SettingsError(
            "settings.short_secret_key", "QH_SECRET_KEY is shorter than 40 characters.", fix
        )
