"""Log lines: time, level, logger, request id, message; one line each, on stderr."""

from __future__ import annotations

import json
import logging
import time
from typing import ClassVar

from qualityhub.platform.requestid import current_request_id


class RequestFilter(logging.Filter):
    """Adds the request id to every record."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Keep every record."""
        record.request_id = current_request_id() or "-"
        return True


class LineFormatter(logging.Formatter):
    """Plain lines whose fields can be cut by blanks; control characters are escaped."""

    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"
    KEYS: ClassVar[str] = "fields"

    def format(self, record: logging.LogRecord) -> str:
        """Return one line; a traceback follows on lines of its own."""
        message = record.getMessage()
        if not message.isprintable():
            # Foreign text must not start a new line or move the terminal's cursor.
            message = "".join(
                char if char.isprintable() else json.dumps(char)[1:-1] for char in message
            )
        fields = getattr(record, self.KEYS, {})
        tail = "".join(f" {key}={json.dumps(value, default=str)}" for key, value in fields.items())
        request = getattr(record, "request_id", "-")
        line = (
            f"{self.formatTime(record)} {record.levelname} {record.name} {request} {message}{tail}"
        )
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line
