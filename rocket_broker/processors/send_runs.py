"""Sends that are stored together: the plain requests at the beginning of what was read from connections.

::

    received of A    send | batch | pull | send | …
    received of B    send | send         └─ run, of A alone
                     └── run ────┘                       parsed, stored and answered by the native core

A lone send (the only request received in a turn of the loop, as from a client that waits for each answer) takes one
call of the core.

Policy is asked once for each queue of a run, and for the run as a whole. Whatever is unusual is left to
`SendProcessor`, request by request: a topic or queue that does not exist, a refusal, a message that waits, a full file,
a flush for each message. So each rule is written once, there.

With access control a run ends before the first request that its sender may not send (`SendGrants`).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rocket_broker import put_times
from rocket_broker.access.needs import Needs
from rocket_broker.loop.watchdog import Watchdog
from rocket_broker.processors.batches import MOST_KEYS, PART_BYTES, PART_MESSAGES
from rocket_broker.processors.broker_context import BrokerContext
from rocket_broker.processors.destinations import Destinations
from rocket_broker.processors.known_pulls import is_pull
from rocket_broker.processors.origin_properties import ORIGIN_PROPERTIES, origin_properties
from rocket_broker.processors.send import SendProcessor
from rocket_broker.processors.send_grants import SendGrants
from rocket_broker.processors.waiting import WAITING_PROPERTIES
from rocket_broker.writing.message_keys import MAX_KEYS
from rocket_broker.writing.message_runs import packed_born_host, packed_host
from rocket_broker.writing.message_writer import properties_text
from rocket_broker.writing.timer_request import TIMED_NAME
from rocket_remoting.native import has_native_core
from rocket_remoting.session.arrivals import Taken
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.codes import RequestCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.errors import LocalProtocolError
from rocket_remoting.wire.headers import SendMessageResponseHeader
from rocket_remoting.wire.message import Host
from rocket_remoting.wire.properties import PROPERTY_DELAY_TIME_LEVEL
from rocket_remoting.wire.sys_flag import COMPRESSED, COMPRESSION_TYPE_MASK

if TYPE_CHECKING:
    from rocket_native import AnswerTemplate, LoneSends, PlainSends, Run, SendReader

    from rocket_broker.store.consume_queue import ConsumeQueue

__all__ = ["MOST_SENDS", "RUN_CODES", "SendRuns"]

RUN_CODES = frozenset({RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE})
"""The codes of the requests that a run may have."""
MOST_SENDS = 128
"""Maximum number of requests of a run. With as many messages as `PART_MESSAGES` they take about a millisecond."""

_PREFIX = 8
"""Bytes of a frame before its header."""
_USUAL_BEGIN = b'{"code":'
_CODE = _PREFIX + len(_USUAL_BEGIN)
_DIGIT_OF_SENDS = ord("3")
_BEGINS_OF_SENDS = bytes((_DIGIT_OF_SENDS, ord(" ")))
"""The first character of the codes in `RUN_CODES` (310, 320). A space means that the header has another layout and may
have any code."""

_NOTHING: Taken = (0, b"", False)
"""The result for a connection whose first request is to be handled by itself."""

_ID, _QUEUE, _QUEUE_OFFSET, _OPAQUE = "<id>", 1_111_111_111, 2_222_222_222, 1_333_333_333
"""What stands in an answer where `_divided` divides it."""


class SendRuns:
    """Stores and answers plain sends together.

    Args:
        context: The broker's parts.
        destinations: The topics and queues.
        sending: Stores what is not plain, and knows whether the broker stops.
        needs: What a send needs where access control is on.
    """

    def __init__(
        self, context: BrokerContext, destinations: Destinations, sending: SendProcessor, needs: Needs
    ) -> None:
        self._settings = context.settings
        self._store = context.store
        self._writer = context.writer
        self._statistics = context.statistics
        self._fast_failure = context.fast_failure
        self._destinations = destinations
        self._sending = sending
        self._grants = None if context.access is None else SendGrants(context.access, needs)
        keeps_signatures = self._grants is not None
        self._reader = _reader(context.writer.store_host, keeps_signatures) if has_native_core() else None
        self._origin = ""
        self._template: AnswerTemplate | None = None
        # The settings that the template is made of.
        self._region_id, self._trace_on = "", False
        self._lone: LoneSends[ConsumeQueue] | None = None  # only without access control

    def take(self, received: Sequence[tuple[Connection, memoryview]]) -> Sequence[Taken] | None:
        """Store and answer the first requests of what connections have received, if they are plain.

        Args:
            received: For each connection what was received, beginning with a complete frame.

        Returns:
            For each connection the bytes of the requests, the answers that are sent now, and whether what follows may
            be taken, too; None if nothing was done, but what each connection has sent may be taken by itself.
        """
        reader = self._reader
        if reader is None or (len(received) == 1 and _is_other(received[0][1])):
            return None
        if self._sending.is_stopping or not self._store.takes_runs:
            return None
        settings = self._settings
        # Inlined here and in `take_alone`, because it runs for every send.
        if self._template is None or settings.region_id != self._region_id or settings.trace_on != self._trace_on:
            self._make_template()
        host = self._writer.store_host
        arrived: list[tuple[bytes, int, memoryview]] = []
        try:
            for connection, frames in received:
                born_host, host_flags = packed_born_host(connection.remote_address, host)
                arrived.append((born_host, host_flags, frames))
        except LocalProtocolError:  # an address that no record can have
            return None
        sends = reader.read(arrived, self._origin, self._store.settings.max_message_size)
        if sends is None:
            return [_NOTHING] * len(received)
        return self._store_run(received, arrived, sends)

    def _store_run(
        self,
        received: Sequence[tuple[Connection, memoryview]],
        arrived: Sequence[tuple[bytes, int, memoryview]],
        sends: "PlainSends",
    ) -> Sequence[Taken] | None:
        """Store and answer plain sends as `take` does.

        Args:
            received: As `take` gets it.
            arrived: The same, as the reader gets it.
            sends: The requests that the reader has found.
        """
        reader, template = self._reader, self._template
        if reader is None or template is None:
            raise AssertionError("the reader has found the sends, and the template is made before")
        targets = sends.targets
        if self._grants is not None or not self._destinations.are_plain(targets):
            permitted = self._permitted(reader, received, arrived, sends)
            if permitted is None:  # a connection without plain sends may have been left out because of others' number
                return [(0, b"", not count) for count in sends.counts]
            sends = permitted
            targets = sends.targets
        waits = self._sending.answers_later
        if waits and not sends.all_wait:
            return None
        earliest = received[0][0]  # the connections are in the order in which they were read
        if self._fast_failure.is_late(RequestCode.SEND_MESSAGE_V2, earliest.waiting_since, len(sends)):
            return None
        began = Watchdog.clock()
        stored = self._store.put_run(sends, targets)
        seconds = Watchdog.clock() - began
        if stored is None:
            return None
        run, last = stored
        topics = sends.topics
        if len(topics) == 1:
            traffic = self._statistics.puts[topics[0]]
            traffic.calls += len(sends)
            traffic.messages += sends.message_count
            traffic.size += run.size
        else:
            self._count(sends, targets, run)
        if seconds >= put_times.FAST_SECONDS:
            self._statistics.put_times.note(seconds, sends.message_count)
            Watchdog.check(began, "storing messages of consecutive requests")
        answers = sends.answers(run, template)
        if waits:
            self._sending.answer_when_flushed(
                last, [(connection, own) for (connection, _), (_, own, _) in zip(received, answers, strict=True) if own]
            )
            return [(length, b"", may_go_on) for length, _, may_go_on in answers]
        return answers

    def take_alone(self, connection: Connection, received: memoryview) -> Taken | None:
        """Handle what was received from the only connection of this turn, as `take` does for several.

        Args:
            connection: The connection.
            received: What was received, beginning with a complete frame.

        Returns:
            The number of bytes handled, the answers that are sent now, and whether what follows may be taken, too; None
            if nothing was handled, and the first request is to be handled by itself.
        """
        lone, settings = self._lone, self._settings
        if len(received) <= _CODE or received[_CODE] != _DIGIT_OF_SENDS:
            if _is_other(received):
                return None
        elif (
            lone is not None
            and not self._sending.is_stopping
            and not self._sending.answers_later
            and settings.region_id == self._region_id
            and settings.trace_on == self._trace_on
            # If no turn has begun, the request has not waited, and fast failure cannot apply.
            and not (
                self._fast_failure.in_turn
                and self._fast_failure.is_late(RequestCode.SEND_MESSAGE_V2, connection.waiting_since, 1)
            )
        ):
            began = Watchdog.clock()
            try:
                born_host = packed_born_host(connection.remote_address, self._writer.store_host)
            except LocalProtocolError:  # an address that no record can have
                return None
            stored = self._store.put_alone(lone, received, born_host, self._destinations.known_plain)
            if isinstance(stored, tuple):
                length, answer, topic, count, size = stored
                # Counted as in `take`; inlined, because this runs for every lone send.
                traffic = self._statistics.puts[topic]
                traffic.calls += 1
                traffic.messages += count
                traffic.size += size
                seconds = Watchdog.clock() - began
                if seconds >= put_times.FAST_SECONDS:
                    self._statistics.put_times.note(seconds, count)
                    Watchdog.check(began, "storing messages of a request")
                return length, answer, length < len(received) and is_pull(received, length)
            if stored is None:
                return None
            taken = self._store_run(((connection, received),), ((*born_host, received),), stored)
            return None if taken is None else taken[0]
        taken = self.take(((connection, received),))
        return None if taken is None else taken[0]

    def _permitted(
        self,
        reader: "SendReader",
        received: Sequence[tuple[Connection, memoryview]],
        arrived: Sequence[tuple[bytes, int, memoryview]],
        sends: "PlainSends",
    ) -> "PlainSends | None":
        """Return the first requests of each connection that are plain and allowed; None if there are none.

        Args:
            reader: Finds the plain requests.
            received: As `take` gets it.
            arrived: The same, as the reader gets it.
            sends: The requests that the reader has found.
        """
        counts = most = sends.counts
        if not self._destinations.are_plain(sends.targets):
            most = self._most(sends, counts)
        if self._grants is not None:
            most = self._grants.allowed(received, sends, most)
        if most == counts:
            return sends
        longest_body = self._store.settings.max_message_size
        return reader.read(arrived, self._origin, longest_body, most) if any(most) else None

    def _count(self, sends: "PlainSends", targets: Sequence[tuple[str, int]], run: "Run") -> None:
        """Count the messages of each topic, where they are of several topics.

        The core tells the messages of each queue, but only the bytes of all messages. Bytes and requests are shared out
        by the number of messages.
        """
        rest, size, calls = sends.message_count, run.size, len(sends)
        for (topic, _), (messages, _) in zip(targets, run.queues, strict=True):
            own_size, own_calls = size * messages // rest, calls * messages // rest
            self._statistics.puts[topic].count(messages, own_size, own_calls)
            rest, size, calls = rest - messages, size - own_size, calls - own_calls

    def _most(self, sends: "PlainSends", counts: Sequence[int]) -> list[int]:
        """Return for each connection the number of its requests before the first that is not stored as it is."""
        most, targets = list(counts), sends.targets
        for connection, target, first in sends.uses:
            if not self._destinations.are_plain([targets[target]]):
                most[connection] = min(most[connection], first)
        return most

    def _make_template(self) -> "AnswerTemplate":
        """Make the properties that each message gets, and return the answer's header in five pieces."""
        from rocket_native import AnswerTemplate

        self._origin = properties_text(origin_properties(self._settings))
        self._region_id, self._trace_on = self._settings.region_id, self._settings.trace_on
        pieces = self._divided(self._region_id, self._trace_on)
        self._template = template = AnswerTemplate(self._sending.id_prefix, pieces)
        if self._reader is not None and self._grants is None:
            self._lone = self._store.lone_sends(self._reader, self._origin, template)
        return template

    @staticmethod
    def _divided(region_id: str, trace_on: bool) -> tuple[str, str, str, str, str]:
        header = SendMessageResponseHeader(
            msg_id=_ID, queue_id=_QUEUE, queue_offset=_QUEUE_OFFSET, msg_region=region_id, trace_on=trace_on
        )
        to = RemotingCommand(RequestCode.SEND_MESSAGE_V2, _OPAQUE)
        (frame,) = RemotingCommand.response(to, header=header).encode()
        text = str(frame[8:], "utf-8")
        # The region, which may have any name, stands behind the first three and before the last.
        before, text = text.split(_ID, 1)
        queue, text = text.split(str(_QUEUE), 1)
        queue_offset, text = text.split(str(_QUEUE_OFFSET), 1)
        opaque, rest = text.rsplit(str(_OPAQUE), 1)
        return before, queue, queue_offset, opaque, rest


def _is_other(frames: memoryview) -> bool:
    """Return whether the first frame is surely no send: its header has the usual beginning, and another code."""
    if len(frames) <= _CODE or frames[_CODE] in _BEGINS_OF_SENDS:
        return False
    return frames[_PREFIX:_CODE] == _USUAL_BEGIN


def _reader(store_host: Host, keeps_signatures: bool) -> "SendReader":
    from rocket_native import SendReader

    return SendReader(
        waiting=sorted({*WAITING_PROPERTIES, PROPERTY_DELAY_TIME_LEVEL, *ORIGIN_PROPERTIES}),
        timed=TIMED_NAME,
        sys_flags=COMPRESSED | COMPRESSION_TYPE_MASK,
        most_keys=MAX_KEYS,
        most_keys_in_all=MOST_KEYS,
        most_messages=PART_MESSAGES,
        most_bytes=PART_BYTES,
        most_sends=MOST_SENDS,
        store_host=packed_host(store_host),
        keeps_signatures=keeps_signatures,
    )
