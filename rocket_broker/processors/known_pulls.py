"""Pull requests that are like earlier ones, handled without decoding them.

A consumer that waits sends the same request again and again, but for three numbers::

    {"code":11,"extFields":{…"commitOffset":"41"…"queueOffset":"42"…},…"opaque":7,…}
    └──── a part ─────────────────────────┘  └─── a part ────┘  └── a part ───┘ └ a part

The parts between the numbers lead to the terms that were decided for the first such request, and are decided again when
what they depend on has changed (`PullProcessor.basis`). All other requests are left to `PullProcessor.pull`, also those
that it refuses.
"""

import re

from rocket_broker.limits.refusal import Refusal
from rocket_broker.loop.watchdog import LIMIT_SECONDS, Watchdog
from rocket_broker.processors.broker_context import BrokerContext
from rocket_broker.processors.pull import PullProcessor
from rocket_broker.pulling.pull_request_hold import PullTerms
from rocket_remoting.session.arrivals import Taken
from rocket_remoting.session.connection import Connection
from rocket_remoting.session.session import MAX_OPAQUE
from rocket_remoting.wire.codes import RequestCode
from rocket_remoting.wire.command import PREFIX, decode_json_header
from rocket_remoting.wire.errors import RemoteProtocolError
from rocket_remoting.wire.headers import PullMessageRequestHeader

__all__ = ["CODE", "DIGIT", "KnownPulls", "is_pull"]

MOST_KNOWN = 8_192
"""Maximum number of remembered terms. Beyond it all are forgotten, and decided again."""
LONGEST_HEADER = 1_024
"""Bytes of a header with remembered terms, at most."""
MOST_TAGS = 16
"""Tags of remembered terms, at most: all together take up to 30 MB."""

_PULL = RequestCode.PULL_MESSAGE
_BEGIN = b'{"code":%d,' % _PULL
_PREFIX = PREFIX.size
_BEGIN_END = _PREFIX + len(_BEGIN)
CODE = _PREFIX + _BEGIN.index(b"1")
"""Where the code of a request stands if its header has the usual begin."""
DIGIT = ord("1")
"""The first digit of the code there, if it is a PULL_MESSAGE."""

_split = re.compile(rb'("queueOffset":"|"commitOffset":"|"opaque":)(0|[1-9][0-9]{0,17})(?![0-9])').split
_NAMES = _OFFSET, _COMMIT, _NUMBER = b'"queueOffset":"', b'"commitOffset":"', b'"opaque":'
_PIECES = 10
"""Pieces of a header with three numbers: before each number a part and a name, and the last part."""


class KnownPulls:
    """Handles pull requests that are like earlier ones."""

    def __init__(self, context: BrokerContext, pulling: PullProcessor) -> None:
        self._fast_failure = context.fast_failure
        self._pulling = pulling
        self._known: dict[tuple[bytes, ...], PullTerms] = {}

    def take(self, connection: Connection, received: memoryview) -> Taken | None:
        """Answer or hold the first request that was received, if it is like an earlier one.

        Args:
            connection: The connection.
            received: What was received, beginning with a complete frame for which `is_pull` is true.

        Returns:
            The number of bytes handled, the answer, and that what follows may be taken, too; None if nothing was done.
        """
        began = Watchdog.clock()
        length, header_length = PREFIX.unpack_from(received)
        # In another encoding the length of the header seems to be much longer.
        if length != 4 + header_length or header_length > LONGEST_HEADER:
            return None
        end = _PREFIX + header_length
        header = received[_PREFIX:end]
        pieces = _split(header)
        if len(pieces) != _PIECES:
            return None
        first, name, number, second, other_name, other, third, last_name, last, rest = pieces
        numbers = {name: int(number), other_name: int(other), last_name: int(last)}
        key = (first, name, second, other_name, third, last_name, rest)
        terms, pulling, fast_failure = self._known.get(key), self._pulling, self._fast_failure
        answer = None
        try:
            if terms is None or terms.basis != pulling.basis(terms.header):
                terms = self._learned(connection, bytes(header), key, numbers)
            if (
                terms is not None
                and (opaque := numbers[_NUMBER]) <= MAX_OPAQUE
                # If no turn has begun, the request has not waited.
                and not (fast_failure.in_turn and fast_failure.is_late(_PULL, connection.waiting_since, 1))
            ):
                answer = pulling.pull_again(connection, terms, opaque, numbers[_OFFSET], numbers[_COMMIT])
        except (Refusal, OSError):
            return None
        if Watchdog.clock() - began > LIMIT_SECONDS:
            Watchdog.check(began, "handling a pull request")
        return None if answer is None else (end, answer, True)

    def _learned(
        self, connection: Connection, header: bytes, key: tuple[bytes, ...], numbers: dict[bytes, int]
    ) -> PullTerms | None:
        """Return the terms of a request, and remember them; None if requests like it cannot be told by their bytes.

        Raises:
            Refusal: The request is refused.
        """
        # Without a backslash each name is written only as it is. A name that occurs once is that of its field; but the
        # request's number may be missing, and is 0 then.
        if b"\\" in header or any(header.count(name.rstrip(b':"')) != 1 for name in _NAMES):
            return None
        try:
            command = decode_json_header(header)
            fields = command.header(PullMessageRequestHeader)
        except RemoteProtocolError:
            return None
        decoded = fields.queue_offset, fields.commit_offset, command.opaque
        is_usual = command.code == _PULL and not command.flag  # the header may have another code behind the first one
        if not is_usual or not command.opaque or tuple(map(numbers.get, _NAMES)) != decoded:
            return None
        terms = self._pulling.terms(connection, command, fields)
        codes = terms.filter.codes if terms is not None else None
        if terms is None or (codes is not None and len(codes) > MOST_TAGS):
            return None
        if len(self._known) >= MOST_KNOWN:
            self._known.clear()
        self._known[key] = terms
        return terms


def is_pull(received: memoryview, start: int = 0) -> bool:
    """Return whether a frame is surely a PULL_MESSAGE: its header has the usual begin.

    Args:
        received: What was received.
        start: Where the frame begins.
    """
    return received[start + _PREFIX : start + _BEGIN_END] == _BEGIN
