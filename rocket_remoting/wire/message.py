"""Messages and queues.

Tags, keys, delay level and similar attributes of a message are properties under reserved names (see `properties`). The
modules `record` and `batch` encode messages.
"""

from collections.abc import Iterable

import msgspec

from rocket_remoting.wire.ext_fields import Int
from rocket_remoting.wire.message_id import create_offset_id
from rocket_remoting.wire.properties import (
    KEY_SEPARATOR,
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_UNIQUE_KEY,
    PROPERTY_WAIT_STORE_MSG_OK,
    RESERVED_PROPERTIES,
)

Host = tuple[str, int]
"""An IP address and a port."""

_NO_HOST: Host = ("0.0.0.0", 0)


class MessageQueue(msgspec.Struct, frozen=True, order=True, gc=False, rename="camel"):
    """One queue of a topic on one broker. Queues sort as by Java's ``compareTo``: topic, broker name, queue id."""

    topic: str
    broker_name: str
    queue_id: Int

    def __str__(self) -> str:
        return f"queue {self.queue_id} of {self.topic} at {self.broker_name}"


class Message:
    """A message for a producer to send.

    Args:
        topic: The topic.
        body: The payload.
        tags: The tag that consumers can subscribe to.
        keys: One key or several, by which the message can be queried.
        delay_level: The broker's delay level, by default 1 … 18; 0 for no delay.
        properties: Further properties; the dict is used, not copied.
        flag: A number for the application, which RocketMQ does not read.
        wait_store_ok: Whether a broker that flushes synchronously answers only after the flush.
    """

    __slots__ = ("body", "flag", "properties", "topic")

    def __init__(
        self,
        topic: str,
        body: bytes,
        *,
        tags: str | None = None,
        keys: str | Iterable[str] | None = None,
        delay_level: int = 0,
        properties: dict[str, str] | None = None,
        flag: int = 0,
        wait_store_ok: bool = True,
    ) -> None:
        self.topic = topic
        self.body = body
        self.flag = flag
        self.properties: dict[str, str] = {} if properties is None else properties
        if tags:
            self.properties[PROPERTY_TAGS] = tags
        if keys:
            self.properties[PROPERTY_KEYS] = keys if isinstance(keys, str) else KEY_SEPARATOR.join(keys)
        if delay_level:
            self.properties[PROPERTY_DELAY_TIME_LEVEL] = str(delay_level)
        if not wait_store_ok:
            self.properties[PROPERTY_WAIT_STORE_MSG_OK] = "false"

    def _set(self, name: str, value: str | None) -> None:
        if value is None:
            self.properties.pop(name, None)
        else:
            self.properties[name] = value

    def _int(self, name: str) -> int:
        try:
            return int(self.properties.get(name) or 0)
        except ValueError:
            return 0

    @property
    def tags(self) -> str | None:
        """The tag that consumers can subscribe to."""
        return self.properties.get(PROPERTY_TAGS)

    @tags.setter
    def tags(self, value: str | None) -> None:
        self._set(PROPERTY_TAGS, value)

    @property
    def keys(self) -> str | None:
        """The keys by which the message can be queried, separated by spaces."""
        return self.properties.get(PROPERTY_KEYS)

    @keys.setter
    def keys(self, value: str | None) -> None:
        self._set(PROPERTY_KEYS, value)

    @property
    def delay_level(self) -> int:
        """The broker's delay level, by default 1 … 18; 0 for no delay."""
        return self._int(PROPERTY_DELAY_TIME_LEVEL)

    @delay_level.setter
    def delay_level(self, value: int) -> None:
        self._set(PROPERTY_DELAY_TIME_LEVEL, str(value) if value else None)

    @property
    def deliver_at_ms(self) -> int | None:
        """Delivery time in milliseconds since the epoch; None for at once. Needs Apache 5.x or the bundled broker."""
        return self._int(PROPERTY_TIMER_DELIVER_MS) or None

    @deliver_at_ms.setter
    def deliver_at_ms(self, value: int | None) -> None:
        self._set(PROPERTY_TIMER_DELIVER_MS, str(value) if value is not None else None)

    @property
    def wait_store_ok(self) -> bool:
        """Whether a broker that flushes synchronously answers only after the flush."""
        return self.properties.get(PROPERTY_WAIT_STORE_MSG_OK, "true").lower() == "true"

    @wait_store_ok.setter
    def wait_store_ok(self, value: bool) -> None:
        self._set(PROPERTY_WAIT_STORE_MSG_OK, None if value else "false")

    @property
    def unique_key(self) -> str | None:
        """The unique id that the producer gave the message before it sent it."""
        return self.properties.get(PROPERTY_UNIQUE_KEY)

    @unique_key.setter
    def unique_key(self, value: str | None) -> None:
        self._set(PROPERTY_UNIQUE_KEY, value)

    def set_user_property(self, name: str, value: str) -> None:
        """Set a user property.

        Raises:
            ValueError: RocketMQ reserves the name, or the name or value is blank: brokers would drop the property.
        """
        if name in RESERVED_PROPERTIES:
            raise ValueError(f"{name} is a property of RocketMQ's own: choose another name")
        if not name.strip() or not value.strip():
            raise ValueError(f"a property needs a name and a value that are not blank: {name!r}: {value!r}")
        self.properties[name] = value

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self._fields())

    __hash__ = None  # type: ignore[assignment]  # messages are mutable

    @classmethod
    def _fields(cls) -> list[str]:
        return [name for type_ in cls.__mro__ for name in getattr(type_, "__slots__", ())]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.topic!r}, {len(self.body)} bytes, properties={self.properties!r})"


class MessageExt(Message):
    """A message as a consumer receives it, with the fields that its broker has added."""

    __slots__ = (
        "body_crc",
        "born_host",
        "born_timestamp",
        "broker_name",
        "commit_log_offset",
        "prepared_transaction_offset",
        "queue_id",
        "queue_offset",
        "reconsume_times",
        "store_host",
        "store_size",
        "store_timestamp",
        "sys_flag",
    )

    def __init__(
        self,
        topic: str,
        body: bytes,
        *,
        properties: dict[str, str] | None = None,
        flag: int = 0,
        queue_id: int = 0,
        queue_offset: int = 0,
        commit_log_offset: int = 0,
        sys_flag: int = 0,
        born_timestamp: int = 0,
        born_host: Host = _NO_HOST,
        store_timestamp: int = 0,
        store_host: Host = _NO_HOST,
        reconsume_times: int = 0,
        prepared_transaction_offset: int = 0,
        body_crc: int = 0,
        store_size: int = 0,
        broker_name: str = "",
    ) -> None:
        # Message.__init__ is not called, to save time: this runs once for every received message.
        self.topic = topic
        self.body = body
        self.properties = {} if properties is None else properties
        self.flag = flag
        self.queue_id = queue_id
        self.queue_offset = queue_offset
        self.commit_log_offset = commit_log_offset
        self.sys_flag = sys_flag
        self.born_timestamp = born_timestamp
        self.born_host = born_host
        self.store_timestamp = store_timestamp
        self.store_host = store_host
        self.reconsume_times = reconsume_times
        self.prepared_transaction_offset = prepared_transaction_offset
        self.body_crc = body_crc
        self.store_size = store_size
        self.broker_name = broker_name

    @property
    def offset_message_id(self) -> str:
        """The offset message id, made of the broker's address and the record's commit log offset."""
        return create_offset_id(*self.store_host, self.commit_log_offset)

    @property
    def msg_id(self) -> str:
        """The unique id that the producer gave the message; without one, `offset_message_id`."""
        return self.properties.get(PROPERTY_UNIQUE_KEY) or self.offset_message_id

    @property
    def queue(self) -> MessageQueue:
        """The queue that the message was read from."""
        return MessageQueue(self.topic, self.broker_name, self.queue_id)

    def __repr__(self) -> str:
        return (
            f"MessageExt({self.topic!r}, {self.broker_name or '?'}:{self.queue_id}@{self.queue_offset},"
            f" {len(self.body)} bytes,"
            f" reconsume_times={self.reconsume_times}, properties={self.properties!r})"
        )
