"""Sends that are stored together: the plain requests at the begin of what was read from connections.

::

    received of A    send | batch | pull | send | …
    received of B    send | send
                     └── run ────┘                       parsed, stored and answered by the native core

Policy is asked once for each queue of a run, and for the run as a whole. Whatever is unusual is left to
`SendProcessor`, request by request: a topic or queue that does not exist, a refusal, a message that waits, a full file,
a flush for each message. So each rule is written once, there.

With access control each request of a run is checked as it is elsewhere, over the bytes that the run is read from. A run
ends before the first request that its sender may not send.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rocket_broker.access.needs import SIGNED, Check, Needs
from rocket_broker.limits.refusal import Refusal
from rocket_broker.loop.watchdog import Watchdog
from rocket_broker.processors.batches import MOST_KEYS, PART_BYTES, PART_MESSAGES
from rocket_broker.processors.broker_context import BrokerContext
from rocket_broker.processors.destinations import Destinations
from rocket_broker.processors.origin_properties import ORIGIN_PROPERTIES, origin_properties
from rocket_broker.processors.send import SendProcessor
from rocket_broker.processors.waiting import WAITING_PROPERTIES
from rocket_broker.put_times import FAST_SECONDS
from rocket_broker.writing.message_keys import MAX_KEYS
from rocket_broker.writing.message_runs import packed_born_host, packed_host
from rocket_broker.writing.message_writer import properties_text
from rocket_broker.writing.timer_request import TIMED_NAME
from rocket_remoting.native import has_native_core
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.codes import RequestCode
from rocket_remoting.wire.command import PREFIX, RemotingCommand, decode_json_header
from rocket_remoting.wire.credentials import ACCESS_KEY
from rocket_remoting.wire.errors import LocalProtocolError, RemoteProtocolError
from rocket_remoting.wire.headers import SendMessageResponseHeader
from rocket_remoting.wire.message import Host
from rocket_remoting.wire.properties import PROPERTY_DELAY_TIME_LEVEL
from rocket_remoting.wire.sys_flag import COMPRESSED, COMPRESSION_TYPE_MASK

if TYPE_CHECKING:
    from rocket_native import AnswerTemplate, PlainSends, Run, SendReader

__all__ = ["MOST_SENDS", "SendRuns"]

MOST_SENDS = 128
"""Maximum number of requests of a run. With as many messages as `PART_MESSAGES` they take about a millisecond."""

_READ = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
"""The requests that the native core reads."""

_TOPIC = "b"
"""The name of the topic among the fields of these requests."""

_LONGEST_HEADER = 16 * 1024
"""Bytes of a header that the native core reads at most."""

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
        self._check: Check | None = None if context.access is None else context.access.check
        self._needs = needs
        self._reader = _reader(context.writer.store_host) if has_native_core() else None
        self._origin = ""
        self._template: AnswerTemplate | None = None
        self._template_of: tuple[object, ...] = ()

    def take(  # noqa: PLR0911 - a return for each reason to take nothing
        self, received: Sequence[tuple[Connection, memoryview]]
    ) -> Sequence[tuple[int, bytes]] | None:
        """Store and answer the first requests of what connections have received, if they are plain.

        Args:
            received: For each connection what was received, beginning with a complete frame.

        Returns:
            For each connection the bytes of the requests, and the answers that are sent now; None if nothing was done,
            and each first request is to be handled by itself.
        """
        reader = self._reader
        if reader is None or self._sending.is_stopping or not self._store.takes_runs:
            return None
        settings, template = self._settings, self._template
        if template is None or self._template_of != (settings.region_id, settings.trace_on):
            template = self._make_template()
        host = self._writer.store_host
        arrived: list[tuple[bytes, int, memoryview]] = []
        try:
            for connection, frames in received:
                born_host, host_flags = packed_born_host(connection.remote_address, host)
                arrived.append((born_host, host_flags, frames))
        except LocalProtocolError:  # an address that no record can have
            return None
        sends = reader.read(arrived, self._origin)
        if sends is None:
            return None
        targets = sends.targets
        if self._check is not None or not self._destinations.are_plain(targets):
            sends = self._permitted(reader, received, arrived, sends)
            if sends is None:
                return None
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
        self._count(sends, targets, run)
        if seconds >= FAST_SECONDS:
            self._statistics.put_times.note(seconds, sends.message_count)
            Watchdog.check(began, "storing messages of consecutive requests")
        answers = sends.answers(run, template)
        if waits:
            self._sending.answer_when_flushed(
                last, [(connection, own) for (connection, _), (_, own) in zip(received, answers, strict=True) if own]
            )
            return [(length, b"") for length, _ in answers]
        return answers

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
        targets = sends.targets
        most = None
        if not self._destinations.are_plain(targets):
            most = self._most(sends, targets, len(received))
        if self._check is not None:
            most = self._most_allowed(self._check, received, most, len(sends))
        if most is None:
            return sends
        fewer = reader.read(arrived, self._origin, most) if any(most) else None
        # What was left out may have made room for requests that are not plain.
        return fewer if fewer is not None and self._destinations.are_plain(fewer.targets) else None

    def _count(self, sends: "PlainSends", targets: Sequence[tuple[str, int]], run: "Run") -> None:
        """Count the messages of each topic.

        The core tells the messages of each queue, but only the bytes of all messages. Where they are of several topics,
        bytes and requests are shared out by the number of messages.
        """
        topic = targets[0][0]
        if len(targets) == 1 or all(target[0] == topic for target in targets):
            traffic = self._statistics.puts[topic]
            traffic.calls += len(sends)
            traffic.messages += sends.message_count
            traffic.size += run.size
            return
        rest, size, calls = sends.message_count, run.size, len(sends)
        for (topic, _), (messages, _) in zip(targets, run.queues, strict=True):
            own_size, own_calls = size * messages // rest, calls * messages // rest
            self._statistics.puts[topic].count(messages, own_size, own_calls)
            rest, size, calls = rest - messages, size - own_size, calls - own_calls

    def _most(self, sends: "PlainSends", targets: Sequence[tuple[str, int]], connections: int) -> list[int]:
        """Return for each connection the number of its requests before the first that is not stored as it is."""
        most = [MOST_SENDS] * connections
        for connection, target, first in sends.uses:
            if not self._destinations.are_plain([targets[target]]):
                most[connection] = min(most[connection], first)
        return most

    def _most_allowed(
        self,
        check: Check,
        received: Sequence[tuple[Connection, memoryview]],
        most: list[int] | None,
        in_all: int,
    ) -> list[int] | None:
        """Return for each connection the number of its first requests that their senders may send.

        Args:
            check: Checks a request.
            received: As `take` gets it.
            most: For each connection the number of its first requests to check; None: all.
            in_all: The number of requests that the native core has found.

        Returns:
            The numbers. None if they are no bounds: each request that the native core has found was checked.
        """
        allowed: list[int] = []
        are_all_checked, left = most is None, in_all
        for number, (connection, data) in enumerate(received):
            bound = left if most is None else min(left, most[number])
            count, end = self._allowed(check, connection, data, bound)
            # No connection has more of the found requests than there are in all.
            are_all_checked &= count == in_all or not _has_frame(data, end)
            allowed.append(count)
            left -= count
        return None if are_all_checked else allowed

    def _allowed(self, check: Check, connection: Connection, data: memoryview, most: int) -> tuple[int, int]:
        """Return the number of the first requests that their sender may send, and the position behind them."""
        count = position = 0
        # Codes of requests, since 5.3 checks some codes only, accounts, and topics that they may send to.
        granted: set[tuple[int, str | None, str | None]] = set()
        while count < most and _has_frame(data, position):
            command, end = _read_send(data, position)
            if command is None:
                break
            try:
                fields = command.keep_fields()
                right = (command.code, fields.get(ACCESS_KEY), fields.get(_TOPIC))
                check(connection, command, SIGNED if right in granted else self._needs)
            except (Refusal, RemoteProtocolError):  # the request's own handler answers it
                break
            granted.add(right)
            count, position = count + 1, end
        return count, position

    def _make_template(self) -> "AnswerTemplate":
        """Make the properties that each message gets, and return the answer's header in five pieces."""
        from rocket_native import AnswerTemplate

        self._origin = properties_text(origin_properties(self._settings))
        used = (self._settings.region_id, self._settings.trace_on)
        self._template = template = AnswerTemplate(self._sending.id_prefix, self._divided(*used))
        self._template_of = used
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


def _read_send(data: memoryview, position: int) -> tuple[RemotingCommand | None, int]:
    """Return the request at a position, and where it ends; None if the native core reads no such request."""
    length, header_length = PREFIX.unpack_from(data, position)
    body, end = position + PREFIX.size + header_length, position + 4 + length
    # A header in another encoding, which the top byte names, seems to be long, too.
    if header_length > _LONGEST_HEADER or body > end:
        return None, end
    try:
        command = decode_json_header(bytes(data[position + PREFIX.size : body]))
    except RemoteProtocolError:
        return None, end
    command.body = data[body:end]
    return (command if command.code in _READ else None), end


def _has_frame(data: memoryview, position: int) -> bool:
    """Return whether a whole frame begins at a position."""
    left = len(data) - position
    return left >= PREFIX.size and bool(PREFIX.unpack_from(data, position)[0] + 4 <= left)


def _reader(store_host: Host) -> "SendReader":
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
    )
