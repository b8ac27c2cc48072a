"""JSON bodies, refused clearly where they are built to break the reader."""

from __future__ import annotations

import codecs
import json
import math
from typing import TYPE_CHECKING, Any

from django.conf import settings
from rest_framework.exceptions import ParseError
from rest_framework.parsers import JSONParser

from qualityhub.engine.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_DIGITS = 400
"""Longer numbers are refused: no member needs them, and reading them takes long."""


class StrictJSONParser(JSONParser):
    """Reads JSON as one meaning: a member once, finite numbers, text that can be stored."""

    def parse(
        self,
        stream: Any,
        media_type: str | None = None,  # noqa: ARG002 - the framework's signature.
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        """Return the parsed body.

        Raises:
            ParseError: Not JSON, a member given twice, a number that is not finite or has hundreds
                of digits, or nested too deeply.
            InvalidInputError: ``input.not_storable``: half of a surrogate pair in a text.
        """
        encoding = (parser_context or {}).get("encoding", settings.DEFAULT_CHARSET)
        try:
            text = codecs.getreader(encoding)(stream).read()
            document = json.loads(
                text,
                parse_constant=_constant,
                parse_float=_float,
                parse_int=_int,
                object_pairs_hook=_once,
            )
            if "\\u" in text:
                json.dumps(document, ensure_ascii=False).encode()
        except RecursionError as error:
            raise ParseError("The JSON is nested too deeply.") from error
        except UnicodeEncodeError as error:
            raise InvalidInputError(
                "input.not_storable", "A text of the body holds half of a surrogate pair."
            ) from error
        except ValueError as error:
            raise ParseError(f"The body is no JSON: {error}.") from error
        return document


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, value in pairs:
        if name in members:
            raise ValueError(f"the member {name[:60]!a} is given twice")
        members[name] = value
    return members


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:40]} is too large")
    return value


def _int(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise ValueError("a number has too many digits")
    return int(text)
