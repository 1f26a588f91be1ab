"""Messages that wait in one of the broker's own topics: half messages of transactions, and timed messages.

Such a message has its real topic and queue in the properties ``REAL_TOPIC`` and ``REAL_QID``, as delayed messages have.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from rocket_broker.limits.owner_quota import owner_group
from rocket_broker.limits.refusal import Refusal
from rocket_broker.perm import READ, WRITE
from rocket_broker.processors.broker_context import BrokerContext
from rocket_broker.store.messages import PutResult, PutStatus
from rocket_broker.writing.timer_request import TIMED_BYTES, asked_moment, is_delayed
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
from rocket_remoting.wire.recall_handle import RecallHandle
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
"""A message without these properties, and without a transaction value in its system flag, does not wait."""

WAITING_QUEUE = 0
"""The topics of waiting messages have one queue each."""


class WaitingIds(NamedTuple):
    """The ids by which the sender ends the wait of a message.

    Attributes:
        transaction_id: Id of a half message's transaction.
        recall_handle: Handle to recall a timed message.
    """

    transaction_id: str | None = None
    recall_handle: str | None = None


NO_IDS = WaitingIds()
"""The ids of a message that does not wait."""


class WaitingMessages:
    """Decides whether and where a message waits."""

    def __init__(self, context: BrokerContext) -> None:
        self._settings = context.settings
        self._clock = context.clock
        self._topics = context.topics
        self._halves = context.halves
        self._timers = context.timers

    def topic(self, connection: Connection, header: SendMessageRequestHeader, properties: dict[str, str]) -> str | None:
        """Return the topic that the message waits in; None if it does not wait.

        Raises:
            Refusal: The message asks for something that this broker does not do, or too many half messages or timed
                messages wait.
        """
        if self._is_half(header, properties):
            group = properties.setdefault(PROPERTY_PRODUCER_GROUP, header.producer_group)
            self._halves.pending.check_capacity(owner_group(group), connection.counted_as)
            self._halves.make_topics()
            return TRANS_HALF_TOPIC
        moment = asked_moment(properties, self._clock.now_ms(), self._settings)
        if moment is None:
            return None
        self._check_capacity(moment)
        properties[PROPERTY_TIMER_OUT_MS] = str(moment)
        self._topics.create_by_send_back(TIMER_TOPIC, 1, READ | WRITE)
        return TIMER_TOPIC

    def stored(self, connection: Connection, topic: str, properties: Mapping[str, str], result: PutResult) -> None:
        """Count a half message as pending until it ends."""
        if topic == TRANS_HALF_TOPIC and result.status is PutStatus.OK:
            group = owner_group(properties[PROPERTY_PRODUCER_GROUP])
            self._halves.pending.begin(result.queue_offset, group, connection.counted_as)

    def refuse_timed(self, entries: Iterable[BatchEntry]) -> None:
        """Check that no message of a batch is timed.

        Raises:
            Refusal: A message is timed. In a batch it would be delivered without its delay.
        """
        for entry in entries:
            if TIMED_BYTES in entry.properties:
                properties = decode_properties(entry.properties)
                if asked_moment(properties, self._clock.now_ms(), self._settings) is not None:
                    raise _timed_batch()

    def ids(self, topic: str, properties: Mapping[str, str]) -> WaitingIds:
        """Return the ids for the answer to the sender of a message that waits in the topic.

        A half message gets its transaction id, a timed message its recall handle.
        """
        unique_key = properties.get(PROPERTY_UNIQUE_KEY)
        if topic == TRANS_HALF_TOPIC or unique_key is None:
            return WaitingIds(transaction_id=unique_key)
        moment = int(properties[PROPERTY_TIMER_OUT_MS])
        handle = RecallHandle(properties[PROPERTY_REAL_TOPIC], self._settings.broker_name, moment + 1, unique_key)
        return WaitingIds(recall_handle=handle.encode())

    def _is_half(self, header: SendMessageRequestHeader, properties: Mapping[str, str]) -> bool:
        """Return whether the message begins a transaction.

        Raises:
            Refusal: It does, but half messages are refused by the settings, or it asks for a delay as well.
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
            return False  # clients older than 4.6.1 keep the transaction property in a redelivery: not a half message
        if self._settings.reject_transaction_message:
            host = self._settings.advertised_host
            raise Refusal(ResponseCode.NO_PERMISSION, f"the broker[{host}] sending transaction message is forbidden")
        if delayed or not TIMER_PROPERTIES.isdisjoint(properties):
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL,
                "a transactional message cannot be delayed: clear its delay, as Apache's clients do",
            )
        return True

    def _check_capacity(self, moment: int) -> None:
        limit = self._settings.timer_congest_num_each_slot
        if self._timers is not None and self._timers.count(moment) >= limit:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"timer message is under flow control, max num limit is {limit}: so many wait for {moment}",
            )


def refuse_waiting_batch(header: SendMessageRequestHeader, common: Mapping[str, str]) -> None:
    """Check that the messages of a batch are neither transactional nor timed.

    Raises:
        Refusal: The batch is transactional or timed.
    """
    if transaction_value(header.sys_flag) or _is_prepared(common):
        raise Refusal(ResponseCode.MESSAGE_ILLEGAL, "a batch cannot be transactional")
    if not TIMER_PROPERTIES.isdisjoint(common):
        raise _timed_batch()


def _timed_batch() -> Refusal:
    return Refusal(ResponseCode.MESSAGE_ILLEGAL, "a batch cannot be timed: send its messages one by one")


def _is_prepared(properties: Mapping[str, str]) -> bool:
    return properties.get(PROPERTY_TRANSACTION_PREPARED, "").lower() == "true"
