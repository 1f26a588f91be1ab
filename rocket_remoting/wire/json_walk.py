"""Reads JSON objects entry by entry, for texts that are too long to be read at once.

::

    {"dataVersion":{…},"topicConfigTable":{"orders":{…},"bills":{…}}}
     └─ key ─────┘ └value┘ └─ key ─────────┘ enter └key─┘ └value┘

Only standard JSON is read. `value` returns the bytes of a value, for msgspec: a string, a number, or an object whose
lists and objects contain no further ones. This module does no I/O.
"""

import re
from collections.abc import Generator, Iterator

from rocket_remoting.wire.errors import RemoteProtocolError

__all__ = ["JsonWalk"]

MAX_VALUE = 64 * 1024
"""Maximum number of bytes of a returned value, and of any string: finding the end takes a tenth of a millisecond."""

_TOKENS_A_STEP = 256

# The quantifiers are possessive (++, *+): without them, a text that no pattern matches would be tried in a
# number of ways that grows exponentially with its length.
_TEXT = rb'"(?:[^"\\]++|\\.)*+"'
_FLAT = rb"[{\[](?:[^{}\[\]\"]++|" + _TEXT + rb")*+[}\]]"
_VALUE = re.compile(
    rb"\{(?:[^{}\[\]\"]++|" + _TEXT + rb"|" + _FLAT + rb")*+\}|" + _FLAT + rb"|" + _TEXT + rb"|[^\s{}\[\],:\"]++",
    re.DOTALL,
)
_KEY = re.compile(_TEXT, re.DOTALL)
_SPACE = re.compile(rb"\s*+")
_TOKEN = re.compile(rb"[^{}\[\]\"]++|" + _TEXT + rb"|[{}\[\]]", re.DOTALL)


class JsonWalk:
    """A position in a JSON text.

    Args:
        data: The text.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def copy(self) -> "JsonWalk":
        """Return another walk through the same text, at the same position."""
        other = JsonWalk(self._data)
        other._position = self._position
        return other

    def names(self) -> Iterator[bytes]:
        """Yield the names of the object that begins here, as they are written, with their quotes.

        Before the next name, read its value with `value` or `skip`, or with `names` if it is an object.

        Raises:
            RemoteProtocolError: No object begins here, or it is not JSON.
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
            RemoteProtocolError: No value begins here, it has more than `MAX_VALUE` bytes, or it is nested too deeply.
        """
        return self._match(_VALUE, "a value")

    def skip(self) -> Generator[None, None, None]:
        """Skip the value that begins here, in steps.

        Raises:
            RemoteProtocolError: No value begins here.
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
        """Check that only spaces follow.

        Raises:
            RemoteProtocolError: Other bytes follow.
        """
        self._skip_space()
        if self._position < len(self._data):
            raise self._unexpected("the end")

    def _expect(self, character: bytes) -> None:
        if not self._take(character):
            raise self._unexpected(character.decode())

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
            raise self._unexpected(expected)
        self._position = match.end()
        return match[0]

    def _skip_space(self) -> None:
        match = _SPACE.match(self._data, self._position, self._position + MAX_VALUE)
        self._position = match.end() if match is not None else self._position

    def _unexpected(self, expected: str) -> RemoteProtocolError:
        found = self._data[self._position : self._position + 40]
        return RemoteProtocolError(
            f"expected {expected} of at most {MAX_VALUE} bytes at {self._position} of a body of {len(self._data)} "
            f"bytes, not {found!r}"
        )
