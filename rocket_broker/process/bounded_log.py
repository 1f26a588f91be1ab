"""A log of bounded size: clients could make a server log the same line without end.

All records of one line of the source are a *kind*. Each minute the log shows at most 10 records of a kind about one
peer, and 100 of the kind in all. Further records are counted, and one record reports their number at the end of the
minute. So a peer that floods a server does not keep records about others out of the log. Records name their peer by
`rocket_remoting.session.address.log_peer`; records without a peer share the 100.

Data of clients may be part of a record. The record stays one line, of bounded length.
"""

import asyncio
import logging
import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

__all__ = ["BoundedLog", "OneLine"]

MINUTE: Final = 60.0
MOST_OF_A_PEER: Final = 10
MOST_OF_A_KIND: Final = 100
MOST_CHARACTERS: Final = 8_192
"""Maximum characters of a line, without its traceback; as long as the longest filter expression."""

_PEERS_NAMED: Final = 3
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class BoundedLog(logging.Handler):
    """Passes records to another handler, a limited number of each kind in a minute, and reports the number left out."""

    def __init__(self, target: logging.Handler) -> None:
        super().__init__()
        self._target = target
        self._kinds: dict[tuple[str, int], _Kind] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Pass the record on, or count it as left out."""
        place = record.pathname, record.lineno
        kind = self._kinds.get(place)
        if kind is None:
            kind = self._kinds[place] = _Kind()
        if kind.admits(record):
            self._target.handle(record)

    def end_minute(self) -> None:
        """Report the records that were left out, and begin a new minute."""
        self.acquire()
        try:
            kinds, self._kinds = self._kinds, {}
        finally:
            self.release()
        for kind in kinds.values():
            summary = kind.summary()
            if summary is not None:
                self._target.handle(summary)

    @asynccontextmanager
    async def minutes(self) -> AsyncIterator[None]:
        """End minute after minute within the block; the last minute ends with the block."""
        task = asyncio.create_task(self._end_minutes(), name="minutes of the log")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self.end_minute()

    async def _end_minutes(self) -> None:
        while True:
            await asyncio.sleep(MINUTE)
            self.end_minute()


class _Kind:
    """The records of one line of the source in this minute."""

    __slots__ = ("_first", "_left_out", "_shown", "_shown_of")

    def __init__(self) -> None:
        self._shown = 0
        self._shown_of: Counter[str] = Counter()
        # By peers with shown records, which bounds their number; "" counts the records of all other peers.
        self._left_out: Counter[str] = Counter()
        self._first: logging.LogRecord | None = None

    def admits(self, record: logging.LogRecord) -> bool:
        """Count the record; return whether to show it."""
        peer: str = getattr(record, "peer", "")
        if self._shown < MOST_OF_A_KIND and (not peer or self._shown_of[peer] < MOST_OF_A_PEER):
            self._shown += 1
            if peer:
                self._shown_of[peer] += 1
            return True
        self._left_out[peer if peer in self._shown_of else ""] += 1
        if self._first is None:
            # Keep the text and not the arguments, which may hold on to a connection or a message.
            self._first = _record_like(record, _text(record))
        return False

    def summary(self) -> logging.LogRecord | None:
        """Return a record about the records that were left out; None if there are none."""
        first = self._first
        if first is None:
            return None
        total = self._left_out.total()
        del self._left_out[""]
        peers = self._left_out.most_common(_PEERS_NAMED)
        about = f" ({', '.join(f'{count} about {peer}' for peer, count in peers)})" if peers else ""
        text = "%d further line(s) of this kind left out%s, the first: %s"
        return _record_like(first, text, total, about, first.msg)


def _text(record: logging.LogRecord) -> str:
    """Return the record's text; arguments that do not fit it must not fail the caller."""
    try:
        return record.getMessage()
    except Exception:
        return str(record.msg)


def _record_like(record: logging.LogRecord, text: str, *arguments: object) -> logging.LogRecord:
    """Return a record of the same kind with another text."""
    return logging.LogRecord(record.name, record.levelno, record.pathname, record.lineno, text, arguments, None)


class OneLine(logging.Formatter):
    """Formats each record as one line, whatever data of clients it contains."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Return the line with control characters escaped, and cut if it is too long."""
        line = super().formatMessage(record)
        if len(line) > MOST_CHARACTERS:
            line = f"{line[:MOST_CHARACTERS]}… ({len(line)} characters)"
        return _CONTROL.sub(lambda control: control[0].encode("unicode_escape").decode(), line)
