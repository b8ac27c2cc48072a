"""``Authorization: Bearer qh_…`` for the API."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed

from qualityhub.accounts.services import token_authenticate

if TYPE_CHECKING:
    from rest_framework.request import Request

    from qualityhub.accounts.models import ApiToken, User


class TokenAuthentication(BaseAuthentication):
    """Signs a program in by its token."""

    def authenticate(self, request: Request) -> tuple[User, ApiToken] | None:
        """Return person and token; None where no token is shown.

        Raises:
            AuthenticationFailed: The token is unknown, revoked or expired: one answer for all.
        """
        scheme, _, plain = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            return None
        token = token_authenticate(plain.strip())
        if token is None:
            raise AuthenticationFailed("The token is unknown, revoked or expired.")
        return token.user, token

    def authenticate_header(self, request: Request) -> str:  # noqa: ARG002
        """Return the challenge of a 401 answer."""
        return 'Bearer realm="qualityhub"'
