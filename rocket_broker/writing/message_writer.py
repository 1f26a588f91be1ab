"""From a message with its properties to a record in the store, through the schedule topic if it is delayed.

A delayed message is stored under `SCHEDULE_TOPIC`, in the queue of its level; where it belongs stands in its
properties ``REAL_TOPIC`` and ``REAL_QID``. The consume queue's tag field then holds the time it is due.
"""

from functools import lru_cache
from typing import TYPE_CHECKING

from rocket_broker.limits.refusal import Refusal
from rocket_broker.settings.delay_levels import SCHEDULE_TOPIC, DelayLevels
from rocket_broker.store.message_store import MessageStore
from rocket_broker.store.messages import PutResult, StoredRun, StoreMessage
from rocket_broker.writing.batch_head import BatchHead
from rocket_broker.writing.message_keys import check_keys
from rocket_remoting.clock import Clock
from rocket_remoting.wire.batch import BatchEntry
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.java_hash import java_hash
from rocket_remoting.wire.message import Host
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

if TYPE_CHECKING:
    from rocket_broker.writing.batch_columns import BatchColumns

__all__ = ["MessageWriter", "properties_text"]

_tags_code = lru_cache(maxsize=4096)(java_hash)


class MessageWriter:
    """Stores messages for the processors.

    Attributes:
        store_host: The address this broker is known by; it stands in every record and in message ids.
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
            topic: Where it belongs.
            queue_id: Queue of the topic.
            body: Its bytes.
            properties: Its properties; changed when it is delayed.
            flag: The application's number.
            sys_flag: Bits of `rocket_remoting.wire.sys_flag`.
            born_timestamp: When it was made.
            born_host: By whom.
            reconsume_times: Redeliveries so far.
            prepared_transaction_offset: Where the half message lies that this one takes the place of.
            keep_wait: Store the property ``WAIT`` of a message that is not delayed.
            may_delay: Heed the property ``DELAY``; false for a message that has waited already.
            was_stored: Whether it was taken before: its body may be larger than what may be sent now.

        Raises:
            Refusal: The delay level is no number, or the message has too many keys.
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

    def put_columns(self, head: BatchHead, columns: "BatchColumns") -> StoredRun | None:
        """Store messages of a batch in one go; return None if they have to be stored by `put_entry`."""
        run = columns.run(head, self.store_host)
        return self._store.put_run(run) if run is not None else None

    def put_entry(self, head: BatchHead, entry: BatchEntry) -> PutResult:
        """Store a message of a batch, with the head's properties after its own.

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
        """Return the level the message waits at, 0 for none; the property says it as recovery reads it."""
        asked = properties[PROPERTY_DELAY_TIME_LEVEL]
        try:
            level = int(asked)
        except ValueError:
            raise Refusal(
                ResponseCode.MESSAGE_ILLEGAL, f"the message's delay level {asked!r} is no number"
            ) from None
        bounded = self._levels.bounded(level)
        if bounded:
            properties[PROPERTY_DELAY_TIME_LEVEL] = str(bounded)
        return bounded


def properties_text(properties: dict[str, str]) -> str:
    """Return the wire form of properties that came from the wire: they hold no separators to look for."""
    return "\x02".join([f"{name}\x01{value}" for name, value in properties.items()])
