"""JSON bodies, refused clearly where they are built to break the reader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rest_framework.exceptions import ParseError
from rest_framework.parsers import JSONParser

if TYPE_CHECKING:
    from collections.abc import Mapping


class StrictJSONParser(JSONParser):
    """Reads JSON; nesting deeper than the reader can follow is malformed input, not our failure."""

    def parse(
        self,
        stream: Any,
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        """Return the parsed body.

        Raises:
            ParseError: Not JSON, NaN or infinities, or nested too deeply.
        """
        try:
            return super().parse(stream, media_type, parser_context)
        except RecursionError as error:
            raise ParseError("The JSON is nested too deeply.") from error
