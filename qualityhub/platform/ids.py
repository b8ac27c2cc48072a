"""Public ids: a prefix that says what it is, and 128 random bits."""

from __future__ import annotations

import base64
import re
import secrets
from typing import TYPE_CHECKING, Any, ClassVar

from django.db import models

if TYPE_CHECKING:
    TextField = models.CharField[str, str]
else:
    TextField = models.CharField

SHAPE = re.compile(r"[a-z]{2,8}_[a-z2-7]{26}")


def public_id(prefix: str) -> str:
    """Return a new id, e.g. ``env_`` and 26 letters and digits of base 32."""
    return f"{prefix}_{base64.b32encode(secrets.token_bytes(16)).decode().rstrip('=').lower()}"


def is_public_id(value: str, prefix: str) -> bool:
    """Tell whether a text from outside can be an id of this kind at all."""
    return bool(SHAPE.fullmatch(value)) and value.startswith(f"{prefix}_")


class PublicIdField(TextField):
    """Holds the public id; every new row gets one, also in bulk.

    Args:
        prefix: The kind's prefix, unless the model names it in ``PREFIX``.
    """

    def __init__(self, *args: Any, prefix: str = "", **kwargs: Any) -> None:
        self.prefix = prefix
        super().__init__(*args, **{"max_length": 40, "unique": True, "editable": False, **kwargs})

    def deconstruct(self) -> Any:
        """Keep a prefix of its own in migrations."""
        name, path, args, kwargs = super().deconstruct()
        if self.prefix:
            kwargs["prefix"] = self.prefix
        return name, path, args, kwargs

    def has_default(self) -> bool:
        """Every new row has one."""
        return True

    def get_default(self) -> str:
        """Return a new id with the model's prefix."""
        return public_id(self.prefix or getattr(self.model, "PREFIX", "row"))


class PublicIdModel(models.Model):
    """Adds ``public_id`` with the prefix that the model names in ``PREFIX``."""

    PREFIX: ClassVar[str]

    public_id = PublicIdField()

    class Meta:
        """No table of its own."""

        abstract = True

    def __str__(self) -> str:
        return str(self.public_id)
