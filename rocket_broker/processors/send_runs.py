"""Sends that are stored together: the plain requests at the begin of what was read from connections.

::

    received of A    send | batch | pull | send | …
    received of B    send | send
                     └── run ────┘                       parsed, stored and answered by the native core

Policy is asked once for each queue of a run, and for the run as a whole. Whatever is unusual is left to
`SendProcessor`, request by request: a topic or queue that does not exist, a refusal, a message that waits, a full file,
a flush for each message. So each rule is written once, there.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rocket_broker.loop.watchdog import Watchdog
from rocket_broker.processors.batches import MOST_KEYS, PART_BYTES, PART_MESSAGES
from rocket_broker.processors.broker_context import BrokerContext
from rocket_broker.processors.destinations import Destinations
from rocket_broker.processors.send import SendProcessor
from rocket_broker.processors.waiting import WAITING_PROPERTIES
from rocket_broker.writing.message_keys import MAX_KEYS
from rocket_broker.writing.message_runs import SendsRun
from rocket_broker.writing.timer_request import TIMED_NAME
from rocket_remoting.native import has_native_core
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.codes import RequestCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.headers import SendMessageResponseHeader
from rocket_remoting.wire.properties import PROPERTY_CLUSTER, PROPERTY_DELAY_TIME_LEVEL
from rocket_remoting.wire.sys_flag import COMPRESSED, COMPRESSION_TYPE_MASK

if TYPE_CHECKING:
    from rocket_native import PlainSends, SendReader

__all__ = ["MOST_SENDS", "SendRuns"]

MOST_SENDS = 128
"""Maximum number of requests of a run. With as many messages as `PART_MESSAGES` they take about a millisecond."""

_ID, _QUEUE, _QUEUE_OFFSET, _OPAQUE = "<id>", 1_111_111_111, 2_222_222_222, 1_333_333_333
"""What stands in an answer where `_divided` divides it."""


class SendRuns:
    """Stores and answers plain sends together.

    Args:
        context: The broker's parts.
        destinations: The topics and queues.
        sending: Stores what is not plain, and knows whether the broker stops.
    """

    def __init__(self, context: BrokerContext, destinations: Destinations, sending: SendProcessor) -> None:
        self._settings = context.settings
        self._store = context.store
        self._writer = context.writer
        self._statistics = context.statistics
        self._fast_failure = context.fast_failure
        self._destinations = destinations
        self._sending = sending
        self._reader = _reader() if has_native_core() else None
        self._cluster = f"{PROPERTY_CLUSTER}\x01{context.settings.broker_cluster_name}"
        self._template: tuple[str, str, str, str, str] = ("", "", "", "", "")
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
        if self._reader is None or self._sending.is_stopping or not self._store.takes_runs:
            return None
        sends = self._reader.read(received, self._cluster)
        if sends is None:
            return None
        targets = sends.targets
        if not self._destinations.are_plain(targets):
            sends = self._reader.read(received, self._cluster, self._most(sends, targets, len(received)))
            if sends is None:
                return None
            targets = sends.targets
            if not self._destinations.are_plain(targets):  # what was left out has made room for further requests
                return None
        if self._sending.waits_for_disk and not sends.all_wait:
            return None
        earliest = received[0][0]  # the connections are in the order in which they were read
        if self._fast_failure.is_late(RequestCode.SEND_MESSAGE_V2, earliest.waiting_since, len(sends)):
            return None
        began = Watchdog.clock()
        stored = self._store.put_run(SendsRun(sends, targets, received, self._writer.store_host))
        Watchdog.check(began, "storing messages of consecutive requests")
        if stored is None:
            return None
        run, last = stored
        self._statistics.put_messages += sends.message_count
        self._statistics.put_bytes += run.size
        settings = self._settings
        if self._template_of != (settings.region_id, settings.trace_on):
            self._make_template()
        answers = sends.answers(run, self._sending.id_prefix, self._template)
        if self._sending.waits_for_disk:
            self._sending.answer_when_flushed(
                last, [(connection, own) for (connection, _), (_, own) in zip(received, answers, strict=True) if own]
            )
            return [(length, b"") for length, _ in answers]
        return answers

    def _most(self, sends: "PlainSends", targets: Sequence[tuple[str, int]], connections: int) -> list[int]:
        """Return for each connection the number of its requests before the first that is not stored as it is."""
        most = [MOST_SENDS] * connections
        for connection, target, first in sends.uses:
            if not self._destinations.are_plain([targets[target]]):
                most[connection] = min(most[connection], first)
        return most

    def _make_template(self) -> None:
        """Make the header of an answer in five pieces, between which its numbers come."""
        used = (self._settings.region_id, self._settings.trace_on)
        self._template = self._divided(*used)
        self._template_of = used

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


def _reader() -> "SendReader":
    from rocket_native import SendReader

    return SendReader(
        waiting=sorted({*WAITING_PROPERTIES, PROPERTY_DELAY_TIME_LEVEL, PROPERTY_CLUSTER}),
        timed=TIMED_NAME,
        sys_flags=COMPRESSED | COMPRESSION_TYPE_MASK,
        most_keys=MAX_KEYS,
        most_keys_in_all=MOST_KEYS,
        most_messages=PART_MESSAGES,
        most_bytes=PART_BYTES,
        most_sends=MOST_SENDS,
    )
