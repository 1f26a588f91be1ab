"""Walking through JSON objects entry by entry, where the whole text is too long to be read in one go.

::

    {"dataVersion":{…},"topicConfigTable":{"orders":{…},"bills":{…}}}
     └─ key ─────┘ └value┘ └─ key ─────────┘ enter └key─┘ └value┘

Only standard JSON is read. A value that is wanted is cut out and left to msgspec; it may be a text, a number, or an
object with lists and objects in it that hold no further ones. This module does no I/O.
"""

import re
from collections.abc import Generator, Iterator

from rocket_remoting.wire.errors import RemoteProtocolError

__all__ = ["JsonWalk"]

MAX_VALUE = 64 * 1024
"""Bytes of a value that is cut out, and of any text: looking for its end takes a tenth of a millisecond."""

_TOKENS_A_STEP = 256

_TEXT = rb'"(?:[^"\\]++|\\.)*+"'
_FLAT = rb"[{\[](?:[^{}\[\]\"]++|" + _TEXT + rb")*+[}\]]"
_VALUE = re.compile(
    rb"\{(?:[^{}\[\]\"]++|"
    + _TEXT
    + rb"|"
    + _FLAT
    + rb")*+\}|"
    + _FLAT
    + rb"|"
    + _TEXT
    + rb"|[^\s{}\[\],:\"]++",
    re.DOTALL,
)
_KEY = re.compile(_TEXT, re.DOTALL)
_SPACE = re.compile(rb"\s*+")
_TOKEN = re.compile(rb"[^{}\[\]\"]++|" + _TEXT + rb"|[{}\[\]]", re.DOTALL)


class JsonWalk:
    """A place in a JSON text.

    Args:
        data: The text.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def here(self) -> "JsonWalk":
        """Return another walk through the same text that begins here."""
        other = JsonWalk(self._data)
        other._position = self._position
        return other

    def names(self) -> Iterator[bytes]:
        """Yield the names of the object that begins here, between their quotes, as they are written.

        Each value is to be taken before the next name: by `value`, `skip`, or `names` if it is an object itself.

        Raises:
            RemoteProtocolError: There is no object, or what follows is no JSON.
        """
        self._expect(b"{")
        if self._take(b"}"):
            return
        while True:
            key = self._match(_KEY, "a name")
            self._expect(b":")
            yield key
            if self._take(b"}"):
                return
            self._expect(b",")

    def value(self) -> bytes:
        """Return the value that begins here.

        Raises:
            RemoteProtocolError: There is none, it has more than `MAX_VALUE` bytes, or is nested deeper than it may be.
        """
        return self._match(_VALUE, "a value")

    def skip(self) -> Generator[None, None, None]:
        """Pass over the value that begins here, whatever it is, in steps.

        Raises:
            RemoteProtocolError: There is none.
        """
        self._skip_space()
        if self._data[self._position : self._position + 1] not in (b"{", b"["):
            self.value()
            return
        depth = tokens = 0
        while True:
            token = self._match(_TOKEN, "the end of an object or list", spaces=False)
            if token in (b"{", b"["):
                depth += 1
            elif token in (b"}", b"]"):
                depth -= 1
                if not depth:
                    return
            tokens += 1
            if not tokens % _TOKENS_A_STEP:
                yield

    def end(self) -> None:
        """Return if nothing but spaces follows.

        Raises:
            RemoteProtocolError: Something does.
        """
        self._skip_space()
        if self._position < len(self._data):
            raise self._error("the end")

    def _expect(self, character: bytes) -> None:
        if not self._take(character):
            raise self._error(character.decode())

    def _take(self, character: bytes) -> bool:
        self._skip_space()
        found = self._data.startswith(character, self._position)
        self._position += found
        return found

    def _match(self, pattern: "re.Pattern[bytes]", expected: str, *, spaces: bool = True) -> bytes:
        if spaces:
            self._skip_space()
        match = pattern.match(self._data, self._position, self._position + MAX_VALUE)
        if match is None:
            raise self._error(expected)
        self._position = match.end()
        return match[0]

    def _skip_space(self) -> None:
        match = _SPACE.match(self._data, self._position, self._position + MAX_VALUE)
        self._position = match.end() if match is not None else self._position

    def _error(self, expected: str) -> RemoteProtocolError:
        found = self._data[self._position : self._position + 40]
        return RemoteProtocolError(
            f"{expected} of at most {MAX_VALUE} bytes is expected at {self._position} of a body of {len(self._data)} "
            f"bytes, not {found!r}"
        )
