"""What the generated OpenAPI document says of every operation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension

from qualityhub.platform.problems import CONTENT_TYPE

if TYPE_CHECKING:
    from collections.abc import Mapping

PROBLEM: Mapping[str, Any] = {
    "type": "object",
    "description": "RFC 9457 problem document.",
    "required": ["type", "title", "status", "detail", "instance", "code", "request_id"],
    "properties": {
        "type": {"type": "string", "format": "uri"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "instance": {"type": "string"},
        "code": {"type": "string", "description": "Stable; programs branch on it."},
        "request_id": {"type": "string"},
        "hint": {"type": "string", "description": "What to do about it."},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["pointer", "detail", "code"],
                "properties": {
                    "pointer": {"type": "string", "description": "JSON pointer into the body."},
                    "detail": {"type": "string"},
                    "code": {"type": "string"},
                },
            },
        },
    },
}
METHODS = frozenset({"get", "post", "put", "patch", "delete"})


class TokenScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    """Describes ``Authorization: Bearer``."""

    target_class = "qualityhub.accounts.authentication.TokenAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: Any) -> dict[str, Any]:  # noqa: ARG002
        """Return the scheme."""
        return {"type": "http", "scheme": "bearer", "bearerFormat": "qh_<key>_<secret>"}


def add_problems(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Give every operation the problem document as its answer to what goes wrong."""
    result.setdefault("components", {}).setdefault("schemas", {})["Problem"] = dict(PROBLEM)
    answer = {
        "description": "A problem document.",
        "content": {CONTENT_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    for path in result.get("paths", {}).values():
        for method, operation in path.items():
            if method in METHODS:
                operation["responses"].setdefault("default", answer)
    return result
