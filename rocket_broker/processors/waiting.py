"""Messages that wait in a topic of the broker's own: half messages of transactions, and timed ones.

Where such a message belongs stands in its properties ``REAL_TOPIC`` and ``REAL_QID``, as for the delay levels.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from rocket_broker.limits.refusal import Refusal
from rocket_broker.limits.shares import owner_group
from rocket_broker.perm import READ, WRITE
from rocket_broker.schedule.recall_handle import RecallHandle
from rocket_broker.schedule.timer_service import TimerService
from rocket_broker.settings.broker_settings import BrokerSettings
from rocket_broker.store.messages import PutResult, PutStatus
from rocket_broker.tables.topic_table import TopicTable
from rocket_broker.transaction.half_messages import HalfMessages
from rocket_broker.writing.timer_request import TIMED_BYTES, asked_moment, is_delayed
from rocket_remoting.clock import Clock
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.batch import BatchEntry
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.headers import SendMessageRequestHeader
from rocket_remoting.wire.properties import (
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_TRANSACTION_PREPARED,
    PROPERTY_UNIQUE_KEY,
    TIMER_PROPERTIES,
    decode_properties,
)
from rocket_remoting.wire.sys_flag import transaction_value
from rocket_remoting.wire.topics import TIMER_TOPIC, TRANS_HALF_TOPIC

__all__ = [
    "NO_IDS",
    "WAITING_PROPERTIES",
    "WAITING_QUEUE",
    "WaitingIds",
    "WaitingMessages",
    "refuse_waiting_batch",
]

WAITING_PROPERTIES = TIMER_PROPERTIES | {PROPERTY_TRANSACTION_PREPARED}
"""A message with none of these, and no transaction in its system flag, does not wait."""

WAITING_QUEUE = 0
"""The topics it waits in have one queue."""


class WaitingIds(NamedTuple):
    """What the sender of a waiting message needs to end its waiting.

    Attributes:
        transaction_id: Of a half message: what its transaction is known by.
        recall_handle: Of a timed one: what it can be recalled by.
    """

    transaction_id: str | None = None
    recall_handle: str | None = None


NO_IDS = WaitingIds()
"""Of a message that does not wait."""


class WaitingMessages:
    """Decides where a message waits."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        clock: Clock,
        topics: TopicTable,
        halves: HalfMessages,
        timers: TimerService | None,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._topics = topics
        self._halves = halves
        self._timers = timers

    def topic(
        self, connection: Connection, header: SendMessageRequestHeader, properties: dict[str, str]
    ) -> str | None:
        """Return the topic that the message waits in, None if it does not wait; its properties say how long.

        Raises:
            Refusal: It asks for what it can't have, or too many half messages wait for their end.
        """
        if self._is_half(header, properties):
            group = properties.setdefault(PROPERTY_PRODUCER_GROUP, header.producer_group)
            self._halves.pending.check_room(owner_group(group), connection.counted_as)
            self._halves.make_topics()
            return TRANS_HALF_TOPIC
        moment = asked_moment(properties, self._clock.now_ms(), self._settings)
        if moment is None:
            return None
        self._check_room(moment)
        properties[PROPERTY_TIMER_OUT_MS] = str(moment)
        self._topics.create_by_send_back(TIMER_TOPIC, 1, READ | WRITE)
        return TIMER_TOPIC

    def stored(
        self, connection: Connection, topic: str, properties: Mapping[str, str], result: PutResult
    ) -> None:
        """Count a half message until it ends."""
        if topic == TRANS_HALF_TOPIC and result.status is PutStatus.OK:
            group = owner_group(properties[PROPERTY_PRODUCER_GROUP])
            self._halves.pending.begin(result.queue_offset, group, connection.counted_as)

    def refuse_timed(self, entries: Iterable[BatchEntry]) -> None:
        """Return if none of a batch's messages asks for a time of its own.

        Raises:
            Refusal: One does: it would be delivered at once.
        """
        for entry in entries:
            if TIMED_BYTES in entry.properties:
                properties = decode_properties(entry.properties)
                if asked_moment(properties, self._clock.now_ms(), self._settings) is not None:
                    raise _timed_batch()

    def ids(self, topic: str, properties: Mapping[str, str]) -> WaitingIds:
        """Return what the sender of a message that waits in the topic is told."""
        unique_key = properties.get(PROPERTY_UNIQUE_KEY)
        if topic == TRANS_HALF_TOPIC or unique_key is None:
            return WaitingIds(transaction_id=unique_key)
        moment = int(properties[PROPERTY_TIMER_OUT_MS])
        handle = RecallHandle(
            properties[PROPERTY_REAL_TOPIC], self._settings.broker_name, moment + 1, unique_key
        )
        return WaitingIds(recall_handle=handle.encode())

    def _is_half(self, header: SendMessageRequestHeader, properties: Mapping[str, str]) -> bool:
        """Whether the message begins a transaction.

        Raises:
            Refusal: It does, but may not, or it wants to be delayed as well.
        """
        if not _is_prepared(properties):
            if transaction_value(header.sys_flag):
                raise Refusal(
                    ResponseCode.MESSAGE_ILLEGAL,
                    f"sysFlag {header.sys_flag} says that the message is transactional, its properties do not: "
                    f"{PROPERTY_TRANSACTION_PREPARED}=true is missing",
                )
            return False
        delayed = is_delayed(properties)
        if delayed and (header.reconsume_times or 0) > 0:
            return False  # a redelivery by a client older than 4.6.1 still says what the message once was
        if self._settings.reject_transaction_message:
            host = self._settings.advertised_host
            raise Refusal(
                ResponseCode.NO_PERMISSION, f"the broker[{host}] sending transaction message is forbidden"
            )
        if delayed or not TIMER_PROPERTIES.isdisjoint(properties):
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                "a transactional message cannot be delayed: clear its delay, as Apache's clients do",
            )
        return True

    def _check_room(self, moment: int) -> None:
        limit = self._settings.timer_congest_num_each_slot
        if self._timers is not None and self._timers.count(moment) >= limit:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"timer message is under flow control, max num limit is {limit}: so many wait for {moment}",
            )


def refuse_waiting_batch(header: SendMessageRequestHeader, common: Mapping[str, str]) -> None:
    """Return if the messages of a batch do not wait.

    Raises:
        Refusal: They ask for it.
    """
    if transaction_value(header.sys_flag) or _is_prepared(common):
        raise Refusal(ResponseCode.MESSAGE_ILLEGAL, "a batch cannot be transactional")
    if not TIMER_PROPERTIES.isdisjoint(common):
        raise _timed_batch()


def _timed_batch() -> Refusal:
    return Refusal(ResponseCode.MESSAGE_ILLEGAL, "a batch cannot be timed: send its messages one by one")


def _is_prepared(properties: Mapping[str, str]) -> bool:
    return properties.get(PROPERTY_TRANSACTION_PREPARED, "").lower() == "true"
