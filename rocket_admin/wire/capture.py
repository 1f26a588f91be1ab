"""The commands in a capture file, explained as by the proxy. Memory is bounded, whatever is in the file.

The beginning of a connection shows which end is the server. If that is missing, the first command decides: it is a
request of the client, a request that only brokers send, or a response.
"""

from collections import OrderedDict
from collections.abc import Iterator
from datetime import datetime
from typing import IO, Final

from rocket_admin.wire.capture_file import CaptureFileError, read_packets
from rocket_admin.wire.captured_frames import CapturedFrame, CapturedFrames, Fault
from rocket_admin.wire.conversation import Conversation, ExplainedCommand, Unreadable
from rocket_admin.wire.reassembly import Reassembly
from rocket_admin.wire.segments import LINK_TYPES, Endpoint, Segment, segment_of
from rocket_remoting.wire.codes import RequestCode

__all__ = ["Capture"]

MOST_CONNECTIONS: Final = 10_000
MOST_BYTES: Final = 256 * 1024 * 1024
"""Memory for incomplete commands and requests without responses; what was quiet for longest is given up first."""

_OF_CONNECTION: Final = 2_000
_OF_REQUEST: Final = 400
"""Bytes that a connection, and a request without a response, cost about."""
_REUSED_AFTER: Final = 4 * 1024 * 1024
"""A SYN this far from the bytes that were seen before belongs to a new connection."""

_OF_SERVERS: Final = frozenset(
    {
        RequestCode.CHECK_TRANSACTION_STATE,
        RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
        RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
        RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
        RequestCode.GET_CONSUMER_RUNNING_INFO,
        RequestCode.CONSUME_MESSAGE_DIRECTLY,
        RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
    }
)
"""Requests that brokers send to clients."""


class Capture:
    """The commands in a capture file.

    Args:
        file: The file; a pipe will do.
        shows_bodies: Whether the explanations show bodies.

    Attributes:
        notes: What `commands` could not tell, a sentence each.
    """

    def __init__(self, file: IO[bytes], *, shows_bodies: bool = False) -> None:
        self.notes: list[str] = []
        self._file = file
        self._shows_bodies = shows_bodies
        self._connections: OrderedDict[tuple[Endpoint, Endpoint], _Connection] = OrderedDict()
        self._number = self._cost = 0

    def commands(self) -> Iterator[ExplainedCommand | Unreadable]:
        """Yield what clients and servers said, in the order of the capture.

        Raises:
            CaptureFileError: The file is not a capture, or is damaged. Commands before the damage were yielded.
            OSError: It cannot be read.
        """
        unread: set[int] = set()
        damage = None
        try:
            for packet in read_packets(self._file):
                if packet.link_type not in LINK_TYPES:
                    unread.add(packet.link_type)
                elif (segment := segment_of(packet)) is not None:
                    yield from self._take(segment)
        except CaptureFileError as error:
            damage = error
        while self._connections:
            _, connection = self._connections.popitem(last=False)
            yield from connection.end()
        self.notes += [f"packets of link type {number} cannot be read" for number in sorted(unread)]
        if damage is not None:
            raise damage

    def _take(self, segment: Segment) -> Iterator[ExplainedCommand | Unreadable]:
        key = (min(segment.source, segment.target), max(segment.source, segment.target))
        connection = self._connections.get(key)
        if connection is not None and connection.is_reused_by(segment):
            yield from connection.end()
            self._cost -= connection.cost
            connection = None
        if connection is None:
            if not (segment.is_syn or segment.data or segment.missing):
                return
            self._number += 1
            connection = self._connections[key] = _Connection(self._number, *key, shows_bodies=self._shows_bodies)
        self._connections.move_to_end(key)
        before = connection.cost
        yield from connection.take(segment)
        self._cost += connection.count_cost() - before
        while len(self._connections) > MOST_CONNECTIONS or self._cost > MOST_BYTES:
            _, quiet = self._connections.popitem(last=False)
            self._cost -= quiet.cost
            yield from quiet.end()


class _Way:
    """One direction of a connection."""

    def __init__(self) -> None:
        self.syn: int | None = None
        self.segments = Reassembly()
        self.frames = CapturedFrames()


class _Connection:
    """A connection of the capture."""

    def __init__(self, number: int, one: Endpoint, other: Endpoint, *, shows_bodies: bool) -> None:
        self.cost = 0
        self._number = number
        self._ends = (one, other)
        self._shows_bodies = shows_bodies
        self._client: Endpoint | None = None
        self._conversation: Conversation | None = None
        self._ways = {one: _Way(), other: _Way()}
        self._bytes = 0
        self._at: datetime | None = None
        self._is_reported = self._is_given_up = False

    def is_reused_by(self, segment: Segment) -> bool:
        """Return whether a segment opens another connection between the same ports."""
        if not segment.is_syn or segment.is_ack:
            return False
        way = self._ways[segment.source]
        if way.syn is not None:
            return way.syn != segment.sequence
        return way.segments.is_started or way.segments.distance(segment.sequence) > _REUSED_AFTER

    def count_cost(self) -> int:
        """Return the bytes of memory that it takes about, which `cost` is from now on."""
        waiting = sum(way.segments.held + way.frames.waiting for way in self._ways.values())
        remembered = 0 if self._conversation is None else self._conversation.remembered
        self.cost = _OF_CONNECTION + waiting + _OF_REQUEST * remembered
        return self.cost

    def take(self, segment: Segment) -> Iterator[ExplainedCommand | Unreadable]:
        """Yield what a segment completes."""
        if self._is_given_up:
            return
        self._at = segment.at
        self._bytes += len(segment.data)
        if segment.is_syn:
            self._ways[segment.source].syn = segment.sequence
            self._client = segment.target if segment.is_ack else segment.source
        self._ways[segment.source].segments.add(segment)
        # The other end's, too: what it waits for may be overdue now.
        for end in (segment.target, segment.source):
            yield from self._read(end, segment.at)

    def end(self) -> Iterator[ExplainedCommand | Unreadable]:
        """Yield what is left when nothing more comes."""
        if self._is_given_up:
            return
        left = [(end, found) for end in self._ends for found in self._left(end)]
        for end, found in sorted(left, key=lambda item: item[1].at):
            yield from self._shown(end, found)
        if not self._is_reported and self._bytes and self._at is not None:
            fault = Fault(self._at, f"no command of RocketMQ is in the {self._bytes:,} bytes of this connection", False)
            yield self._unreadable(self._guessed_client(), fault)

    def _left(self, end: Endpoint) -> Iterator[CapturedFrame | Fault]:
        way = self._ways[end]
        for part in way.segments.ready(None):
            yield from way.frames.take(part)
        yield from way.frames.end()

    def _read(self, end: Endpoint, now: datetime | None) -> Iterator[ExplainedCommand | Unreadable]:
        way = self._ways[end]
        for part in way.segments.ready(now):
            for found in way.frames.take(part):
                yield from self._shown(end, found)

    def _shown(self, sender: Endpoint, found: CapturedFrame | Fault) -> Iterator[ExplainedCommand | Unreadable]:
        if self._is_given_up:
            return
        self._is_reported = True
        if isinstance(found, Fault):
            # Another protocol's connection is reported once, not once for each end.
            self._is_given_up = not found.goes_on and not any(way.frames.found for way in self._ways.values())
            yield self._unreadable(sender, found)
            return
        if self._client is None:
            is_client = not found.command.is_response and found.command.code not in _OF_SERVERS
            self._client = sender if is_client else self._other(sender)
        if self._conversation is None:
            server = str(self._other(self._client))
            self._conversation = Conversation(self._number, server, shows_bodies=self._shows_bodies)
        size = found.body_size if found.lacks_body else None
        yield self._conversation.explain(found.command, found.at, by_client=sender == self._client, body_size=size)

    def _unreadable(self, sender: Endpoint, fault: Fault) -> Unreadable:
        client = self._guessed_client()
        return Unreadable(
            time=fault.at,
            connection=self._number,
            server=str(self._other(client)),
            by_client=sender == client,
            reason=fault.reason,
            goes_on=fault.goes_on,
        )

    def _guessed_client(self) -> Endpoint:
        """Return the client, or the end that is likely to be the client: the one with the higher port."""
        return self._client or max(self._ends, key=lambda end: end.port)

    def _other(self, end: Endpoint) -> Endpoint:
        return self._ends[1] if end == self._ends[0] else self._ends[0]
