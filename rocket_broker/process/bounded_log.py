"""A log that nobody fills from afar: clients may make a server say the same thing without end.

A *kind* is what one line of the source says. Of each kind a minute has at most 10 lines about one peer and 100 in all.
What is left out is counted, and told in one line when the minute is over. So a peer that floods a server leaves room
for what is to be told of others. Records name their peer by `rocket_remoting.session.address.log_peer`; who names none
shares the 100.

What a client sends may be part of a line. It stays one line, and of bounded length.
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
"""Of a line, beside a traceback. An expression that is refused has as many."""

_PEERS_TOLD: Final = 3
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class BoundedLog(logging.Handler):
    """Hands records on to another handler, so many of a kind in a minute, and says how many it did not."""

    def __init__(self, target: logging.Handler) -> None:
        super().__init__()
        self._target = target
        self._kinds: dict[tuple[str, int], _Kind] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Hand the record on, or count it."""
        place = record.pathname, record.lineno
        kind = self._kinds.get(place)
        if kind is None:
            kind = self._kinds[place] = _Kind()
        if kind.takes(record):
            self._target.handle(record)

    def end_minute(self) -> None:
        """Tell what was left out, and begin to count anew."""
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
        """While this is entered, a minute ends after the other; the last one ends with it."""
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
    """What one line of the source said in this minute."""

    __slots__ = ("_first", "_left_out", "_shown", "_shown_of")

    def __init__(self) -> None:
        self._shown = 0
        self._shown_of: Counter[str] = Counter()
        # Of the peers of which something was shown, so there are not more; "" for the rest.
        self._left_out: Counter[str] = Counter()
        self._first: logging.LogRecord | None = None

    def takes(self, record: logging.LogRecord) -> bool:
        """Count the record; return whether it is to be shown."""
        peer: str = getattr(record, "peer", "")
        if self._shown < MOST_OF_A_KIND and (not peer or self._shown_of[peer] < MOST_OF_A_PEER):
            self._shown += 1
            if peer:
                self._shown_of[peer] += 1
            return True
        self._left_out[peer if peer in self._shown_of else ""] += 1
        if self._first is None:
            # Its text, not what it is made of: that may be a connection, or a message.
            self._first = _record_like(record, _text(record))
        return False

    def summary(self) -> logging.LogRecord | None:
        """Return a record that tells of those that were left out; None when all were shown."""
        first = self._first
        if first is None:
            return None
        total = self._left_out.total()
        del self._left_out[""]
        peers = self._left_out.most_common(_PEERS_TOLD)
        about = f" ({', '.join(f'{count} about {peer}' for peer, count in peers)})" if peers else ""
        text = "%d further lines of this kind were left out%s, the first: %s"
        return _record_like(first, text, total, about, first.msg)


def _text(record: logging.LogRecord) -> str:
    """Its text; what it is made of may be anything, and who logs goes on."""
    try:
        return record.getMessage()
    except Exception:
        return str(record.msg)


def _record_like(record: logging.LogRecord, text: str, *arguments: object) -> logging.LogRecord:
    """Return a record of the same kind, with another text."""
    return logging.LogRecord(
        record.name, record.levelno, record.pathname, record.lineno, text, arguments, None
    )


class OneLine(logging.Formatter):
    """Formats so that a message is one line, whatever clients put into it."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Return the line with control characters written out, cut where it is too long."""
        line = super().formatMessage(record)
        if len(line) > MOST_CHARACTERS:
            line = f"{line[:MOST_CHARACTERS]}… ({len(line)} characters)"
        return _CONTROL.sub(_written_out, line)


def _written_out(control: re.Match[str]) -> str:
    return control[0].encode("unicode_escape").decode()
