"""From a message with its properties to a record in the store, by way of the schedule topic if it is delayed.

A delayed message is stored in `SCHEDULE_TOPIC`, in the queue of its delay level. Its properties ``REAL_TOPIC`` and
``REAL_QID`` keep its real topic and queue. The tags code of its consume queue entry is the time at which it is due, in
milliseconds since 1970, as in Apache's broker; `rocket_broker.schedule.delay_service` delivers it then.
"""

from functools import lru_cache
from typing import TYPE_CHECKING

from rocket_broker.limits.refusal import Refusal
from rocket_broker.settings.delay_levels import SCHEDULE_TOPIC, DelayLevels
from rocket_broker.store.message_store import MessageStore
from rocket_broker.store.messages import PutResult, StoredRun, StoreMessage
from rocket_broker.writing.batch_head import BatchHead
from rocket_broker.writing.message_keys import check_keys
from rocket_broker.writing.message_runs import BatchRun
from rocket_remoting.clock import Clock
from rocket_remoting.wire.batch import BatchEntry
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.java_hash import java_hash
from rocket_remoting.wire.message import Host, MessageExt
from rocket_remoting.wire.properties import (
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_KEYS,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TAGS,
    PROPERTY_UNIQUE_KEY,
    PROPERTY_WAIT_STORE_MSG_OK,
    decode_properties,
)
from rocket_remoting.wire.sys_flag import transaction_value

if TYPE_CHECKING:
    from rocket_native import PlainBatch

__all__ = ["MessageWriter", "properties_text"]

_tags_code = lru_cache(maxsize=4096)(java_hash)


class MessageWriter:
    """Stores messages for the processors.

    Attributes:
        store_host: The broker's address, for records and message ids.
    """

    __slots__ = ("_clock", "_levels", "_store", "store_host")

    def __init__(self, store: MessageStore, levels: DelayLevels, clock: Clock, store_host: Host) -> None:
        self._store = store
        self._levels = levels
        self._clock = clock
        self.store_host = store_host

    def put(
        self,
        topic: str,
        queue_id: int,
        body: bytes | memoryview,
        properties: dict[str, str],
        *,
        flag: int,
        sys_flag: int,
        born_timestamp: int,
        born_host: Host,
        reconsume_times: int = 0,
        prepared_transaction_offset: int = 0,
        keep_wait: bool = True,
        may_delay: bool = True,
        was_stored: bool = False,
    ) -> PutResult:
        """Store one message, delayed if its properties say so.

        Args:
            topic: Topic of the message.
            queue_id: Queue of the topic.
            body: The body, compressed or not.
            properties: The properties; changed if the message is delayed.
            flag: The application's flag.
            sys_flag: Bits of `rocket_remoting.wire.sys_flag`.
            born_timestamp: Born time of the message, in milliseconds since 1970.
            born_host: Address of the producer.
            reconsume_times: Number of redeliveries so far.
            prepared_transaction_offset: Commit log offset of the half message that this message replaces.
            keep_wait: Whether to store the property ``WAIT`` of a message that is not delayed.
            may_delay: Whether to apply the property ``DELAY``; False for a message that has waited already.
            was_stored: Whether the message was stored before; then the limits of sent messages do not apply.

        Raises:
            Refusal: The delay level is not a number, or the message has too many keys.
        """
        keys = properties.get(PROPERTY_KEYS, "")
        if not was_stored:
            check_keys(keys)
        wait = properties.get(PROPERTY_WAIT_STORE_MSG_OK)
        tags = properties.get(PROPERTY_TAGS)
        tags_code = _tags_code(tags) if tags else 0
        if may_delay and PROPERTY_DELAY_TIME_LEVEL in properties:
            level = self._level(properties)
            if level:
                properties[PROPERTY_REAL_TOPIC] = topic
                properties[PROPERTY_REAL_QUEUE_ID] = str(queue_id)
                topic, queue_id = SCHEDULE_TOPIC, level - 1
                tags_code = self._levels.deliver_at(level, self._clock.now_ms())
                keep_wait = True
        if wait is not None and not keep_wait:
            del properties[PROPERTY_WAIT_STORE_MSG_OK]
        return self._store.put(
            StoreMessage(
                topic,
                queue_id,
                body,
                properties_text(properties).encode(),
                flag,
                sys_flag,
                born_timestamp,
                born_host,
                self.store_host,
                reconsume_times,
                prepared_transaction_offset,
                tags_code,
                keys,
                properties.get(PROPERTY_UNIQUE_KEY, ""),
                wait is None or wait.lower() == "true",
                was_stored,
            )
        )

    def put_again(
        self,
        message: MessageExt,
        topic: str,
        queue_id: int,
        properties: dict[str, str],
        *,
        sys_flag: int | None = None,
        reconsume_times: int | None = None,
        prepared_transaction_offset: int = 0,
        may_delay: bool = False,
    ) -> PutResult:
        """Store a message again that was read from the store, in another queue or with other properties.

        Args:
            message: The message, with its body as stored.
            topic: Topic to store the message in.
            queue_id: Queue of the topic.
            properties: The new properties; changed if the message is delayed.
            sys_flag: Bits of `rocket_remoting.wire.sys_flag`; None for those of the message.
            reconsume_times: Number of redeliveries so far; None for that of the message.
            prepared_transaction_offset: As for `put`.
            may_delay: As for `put`.

        Raises:
            Refusal: The delay level is not a number.
        """
        return self.put(
            topic,
            queue_id,
            message.body,
            properties,
            flag=message.flag,
            sys_flag=message.sys_flag if sys_flag is None else sys_flag,
            born_timestamp=message.born_timestamp,
            born_host=message.born_host,
            reconsume_times=message.reconsume_times if reconsume_times is None else reconsume_times,
            prepared_transaction_offset=prepared_transaction_offset,
            may_delay=may_delay,
            was_stored=True,
        )

    def put_plain(self, head: BatchHead, messages: "PlainBatch") -> StoredRun | None:
        """Store messages of a batch at once; return None if they have to be stored by `put_entry`."""
        if b"\0" in head.properties or transaction_value(head.sys_flag):
            return None  # the store refuses the first message, or has no queue for it
        if not self._store.takes_runs:
            return None
        batch = BatchRun(messages, head, self.store_host)
        stored = self._store.put_run(batch, batch.targets)
        if stored is None:
            return None
        run, last = stored
        last.wait_store_ok = messages.waits
        return StoredRun(run.offsets, run.size, last.queue_offset - len(messages) + 1, last)

    def put_entry(self, head: BatchHead, entry: BatchEntry) -> PutResult:
        """Store one message of a batch; the head's properties follow its own.

        Raises:
            Refusal: The message has too many keys.
        """
        return self._store.put(self._batch_message(head, entry))

    def _batch_message(self, head: BatchHead, entry: BatchEntry) -> StoreMessage:
        own = entry.properties
        properties = decode_properties(own)
        tags = properties.get(PROPERTY_TAGS)
        keys = properties.get(PROPERTY_KEYS, "")
        check_keys(keys)
        # Java's clients from 4.9.1 to 5.1 do not close the last property. The head's properties must not
        # become part of its value.
        separator = b"\x02" if own and not own.endswith(b"\x02") else b""
        return StoreMessage(
            head.topic,
            head.queue_id,
            entry.body,
            own + separator + head.properties,
            entry.flag,
            head.sys_flag,
            head.born_timestamp,
            head.born_host,
            self.store_host,
            head.reconsume_times,
            0,
            _tags_code(tags) if tags else 0,
            keys,
            properties.get(PROPERTY_UNIQUE_KEY, ""),
            properties.get(PROPERTY_WAIT_STORE_MSG_OK, "true").lower() == "true",
        )

    def _level(self, properties: dict[str, str]) -> int:
        """Return the message's delay level, at most the highest level; 0 for no delay.

        The property gets the returned level, since recovery reads the level from the property.

        Raises:
            Refusal: The level is not a number.
        """
        asked = properties[PROPERTY_DELAY_TIME_LEVEL]
        try:
            level = int(asked)
        except ValueError:
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL, f"the message's delay level {asked!r} is not a number"
            ) from None
        bounded = self._levels.bounded(level)
        if bounded:
            properties[PROPERTY_DELAY_TIME_LEVEL] = str(bounded)
        return bounded


def properties_text(properties: dict[str, str]) -> str:
    """Return the wire form of properties that were read from the wire, and so contain no separators."""
    return "\x02".join([f"{name}\x01{value}" for name, value in properties.items()])
