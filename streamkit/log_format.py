"""The formats of the log of commands: plain text for people, or one JSON object a line for programs.

::

    text    2026-11-26 10:12:13,123 WARNING streamkit.binder.failure_log: Binding 'orders': message 7F00… failed in …
    json    {"timestamp": "2026-11-26T10:12:13.123Z", "level": "WARNING", "logger": "streamkit.binder.failure_log",
             "message": "Binding 'orders': message 7F00… failed in …", "binding": "orders", "next_step": "retry", …}

Structured fields are attributes of the record: `logger.warning(text, extra={"binding": "orders"})`. The page
`docs/observability.md` lists those that streamkit sets; an application may set others.
"""

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import Final

__all__ = ["JsonFormatter", "LogFormat"]

_ATTRIBUTES: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""The attributes that every record has; all others are structured fields."""
_OPENTELEMETRY: Final = "opentelemetry.trace"


class LogFormat(Enum):
    """The format of the lines of a log."""

    TEXT = "text"
    JSON = "json"


class JsonFormatter(logging.Formatter):
    """Formats each record as one line of ASCII: a JSON object with the record's structured fields."""

    def __init__(self, fields: Mapping[str, object] | None = None, *, most_characters: int | None = None) -> None:
        """Create a formatter.

        Args:
            fields: Fields of every line, such as the number of the worker process.
            most_characters: The length to which the message is cut; None for no limit.
        """
        super().__init__()
        self._fields = dict(fields or {})
        self._most_characters = most_characters

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as a JSON object."""
        line: dict[str, object] = {
            "timestamp": datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%S.")
            + f"{int(record.msecs):03}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": self._message(record),
            **self._fields,
        }
        for name, value in vars(record).items():
            if name not in _ATTRIBUTES and name not in line:
                line[name] = value
        if _OPENTELEMETRY in sys.modules and "trace_id" not in line:
            line |= _current_span()
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        try:
            return json.dumps(line, default=str, allow_nan=False)
        except (
            ValueError,
            TypeError,
        ):  # a field that is not a number, that contains itself, or has keys of other types
            return json.dumps({name: str(value) for name, value in line.items()})

    def _message(self, record: logging.LogRecord) -> str:
        text = record.getMessage()
        if self._most_characters is not None and len(text) > self._most_characters:
            return f"{text[: self._most_characters]}… ({len(text)} characters)"
        return text


def _current_span() -> Mapping[str, object]:
    """Return the ids of OpenTelemetry's current span; nothing if there is none."""
    context = sys.modules[_OPENTELEMETRY].get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    return {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}
