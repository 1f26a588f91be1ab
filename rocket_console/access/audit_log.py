"""The audit log: each change that was asked for, and each login, as a line of JSON.

::

    {"time":"2026-11-26T09:30:00.125Z","action":"topic.create","role":"operator","user":"ann","from":"10.0.0.7",
     "names":{"topic":"orders"},"answer":"done","remark":null}

`answer` is `done`, `failed` or `refused`. A line has names and settings, of a body its length, never a password. Texts
that are longer than any name or list of rows are cut, so that nobody can fill the files with a few lines. All
characters but those of ASCII are escaped, and so are line breaks: nobody can forge a line. The file becomes
``<name>.1`` when it is full; ten files are kept. The brokers' own audit logs have the requests that the console sends.
"""

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path
from types import MappingProxyType
from typing import Final

from rocket_admin.times import iso_text
from rocket_console.access.sessions import Session

__all__ = ["AuditLog"]

MAX_SIZE: Final = 10 * 1024 * 1024
"""Bytes of a file."""
FILES: Final = 10
"""Files that are kept, the newest one included."""
LONGEST_NAME: Final = 512
"""Characters of a name in an address. Names of topics and groups have 255 at most, those of retry topics 7 more."""
LONGEST_FIELD: Final = 8 * 1024
"""Characters of a field: enough for the ids of 100 rows."""
LONGEST_REMARK: Final = 1024


class AuditLog:
    """Writes lines to a file, which is created with the first of them."""

    def __init__(self, path: Path) -> None:
        """Create the log.

        Args:
            path: The newest file; its directory is created if it is missing.

        Raises:
            OSError: The directory cannot be created.
        """
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.path = path
        self._lines = _Lines(path, maxBytes=MAX_SIZE, backupCount=FILES - 1, encoding="ascii", delay=True)

    def check(self) -> None:
        """Check that lines can be written, so that nothing is changed that would not be recorded.

        Raises:
            OSError: The file cannot be written.
        """
        self.path.open("ab").close()

    def record(
        self,
        action: str,
        answer: str,
        *,
        session: Session | None,
        host: str | None,
        names: Mapping[str, str],
        fields: Mapping[str, str | int] = MappingProxyType({}),
        remark: str | None = None,
    ) -> None:
        """Write a line.

        Args:
            action: What was asked for, such as `topic.create`.
            answer: `done`, `failed` or `refused`.
            session: Who asked; None if nobody has logged in.
            host: The address that the request came from.
            names: The names of what is concerned.
            fields: Its new settings, and the lengths of bodies.
            remark: Why it failed or was refused.

        Raises:
            OSError: The file cannot be written.
        """
        line = {
            "time": iso_text(datetime.now(UTC)),
            "action": action,
            "role": None if session is None else session.role.value,
            "user": None if session is None else _cut(session.user, LONGEST_NAME),
            "from": host,
            "names": {
                **{name: _cut(text, LONGEST_NAME) for name, text in names.items()},
                **{name: _cut(value, LONGEST_FIELD) for name, value in fields.items()},
            },
            "answer": answer,
            "remark": None if remark is None else _cut(remark, LONGEST_REMARK),
        }
        self._lines.handle(logging.makeLogRecord({"msg": json.dumps(line, separators=(",", ":"))}))

    def close(self) -> None:
        """Close the file."""
        self._lines.close()


class _Lines(RotatingFileHandler):
    """A rotated file that raises what the file system refuses, in place of printing it."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name that logging calls
        raise  # noqa: PLE0704 - it is called while the error is handled


def _cut(value: str | int, most: int) -> str | int:
    if isinstance(value, int) or len(value) <= most:
        return value
    return f"{value[:most]}... ({len(value)} characters)"
