"""Makes requests of messages: checks them, gives them ids, compresses them.

What is wrong with a message is found here, before anything is written to a connection.
"""

from collections.abc import Sequence
from typing import NamedTuple

from rocket_client.errors import IllegalMessageError, MessageTooLargeError
from rocket_client.namespace import Namespace
from rocket_client.settings import ProducerSettings
from rocket_remoting.clock import Clock
from rocket_remoting.wire.batch import encode_batch
from rocket_remoting.wire.codes import RequestCode
from rocket_remoting.wire.compression import CompressionType, compress
from rocket_remoting.wire.errors import LocalProtocolError
from rocket_remoting.wire.headers import SendMessageRequestHeaderV2
from rocket_remoting.wire.message import Message
from rocket_remoting.wire.message_id import UniqueIdGenerator
from rocket_remoting.wire.properties import (
    MAX_PROPERTIES_LENGTH,
    PROPERTY_INSTANCE_ID,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_UNIQUE_KEY,
    PROPERTY_WAIT_STORE_MSG_OK,
    TIMER_PROPERTIES,
    encode_properties_text,
)
from rocket_remoting.wire.sys_flag import COMPRESSED
from rocket_remoting.wire.topics import TOPICS_CLOSED_TO_CLIENTS, is_retry_topic, validate_topic

_MAX_KNOWN_TOPICS = 10_000
_ZLIB = COMPRESSED | CompressionType.ZLIB.sys_flag


class Outgoing(NamedTuple):
    """A message, or a batch, ready to be sent to any queue of its topic."""

    code: int
    topic: str
    """As brokers know it."""
    body: bytes
    properties: str
    flag: int
    sys_flag: int
    born_timestamp: int
    msg_id: str
    reconsume_times: int = 0
    max_reconsume_times: int | None = None


class OutgoingMessages:
    """Prepares messages under one producer's settings."""

    def __init__(
        self, group: str, settings: ProducerSettings, clock: Clock, unique_ids: UniqueIdGenerator
    ) -> None:
        self._group = group
        self._clock = clock
        self._create_id = unique_ids.create
        self._max_size = settings.max_message_size
        self._compress_from = settings.compress_body_threshold
        self._compress_level = settings.compress_level
        self._default_topic = settings.create_topic_key
        self._default_queues = settings.default_topic_queue_nums
        self.namespace = Namespace(settings.namespace)
        """What topics are put into."""
        self._instance_id = self.namespace.name
        # Names of legal topics as brokers know them, so that a topic is checked once and not with each message.
        self._topics: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"OutgoingMessages({self._group!r})"

    def message(self, message: Message, *, compression: int = 0) -> Outgoing:
        """Make a request of one message; it has a unique id afterwards.

        Args:
            message: The message.
            compression: The bits of the system flag that say how its body is compressed already; 0 if it is not.

        Raises:
            IllegalMessageError: It cannot be sent as it is.
        """
        body, properties = message.body, message.properties
        topic = self._check(message.topic, body)
        msg_id = properties.get(PROPERTY_UNIQUE_KEY)
        if msg_id is None:
            msg_id = properties[PROPERTY_UNIQUE_KEY] = self._create_id()
        if self._instance_id:
            properties[PROPERTY_INSTANCE_ID] = self._instance_id
        sys_flag = compression
        if not compression and len(body) >= self._compress_from:
            body, sys_flag = compress(body, CompressionType.ZLIB, self._compress_level), _ZLIB
        return Outgoing(
            RequestCode.SEND_MESSAGE_V2,
            topic,
            body,
            _properties_text(message),
            message.flag,
            sys_flag,
            self._clock.now_ms(),
            msg_id,
        )

    def batch(self, messages: Sequence[Message]) -> Outgoing:
        """Several messages of one topic as one request; each has a unique id afterwards.

        Raises:
            IllegalMessageError: They do not go together, or one of them cannot be sent.
        """
        if not messages:
            raise IllegalMessageError("", "a batch needs at least one message")
        first = messages[0]
        for message in messages:
            self._check(message.topic, message.body)
            _check_batch_member(message, first)
            message.properties.setdefault(PROPERTY_UNIQUE_KEY, self._create_id())
        try:
            body = encode_batch(messages)
        except LocalProtocolError as error:
            raise IllegalMessageError(first.topic, str(error)) from error
        if len(body) > self._max_size:
            raise MessageTooLargeError(first.topic, "a batch", len(body), self._max_size)
        # Brokers add these to each message's own.
        properties = {} if first.wait_store_ok else {PROPERTY_WAIT_STORE_MSG_OK: "false"}
        if self._instance_id:
            properties[PROPERTY_INSTANCE_ID] = self._instance_id
        return Outgoing(
            RequestCode.SEND_BATCH_MESSAGE,
            self.namespace.wrap(first.topic),
            body,
            encode_properties_text(properties),
            0,
            0,
            self._clock.now_ms(),
            ",".join(message.properties[PROPERTY_UNIQUE_KEY] for message in messages),
        )

    def header(self, outgoing: Outgoing, broker_name: str, queue_id: int) -> SendMessageRequestHeaderV2:
        """The request header for one attempt."""
        return SendMessageRequestHeaderV2(
            producer_group=self._group,
            topic=outgoing.topic,
            default_topic=self._default_topic,
            default_topic_queue_nums=self._default_queues,
            queue_id=queue_id,
            sys_flag=outgoing.sys_flag,
            born_timestamp=outgoing.born_timestamp,
            flag=outgoing.flag,
            properties=outgoing.properties,
            reconsume_times=outgoing.reconsume_times,
            unit_mode=False,
            batch=outgoing.code == RequestCode.SEND_BATCH_MESSAGE,
            max_reconsume_times=outgoing.max_reconsume_times,
            broker_name=broker_name,
        )

    def _check(self, topic: str, body: bytes) -> str:
        """The topic as brokers know it, when it and the body are legal."""
        known = self._topics.get(topic)
        if known is None:
            known = self.namespace.wrap(topic)
            _check_topic(known)
            if len(self._topics) >= _MAX_KNOWN_TOPICS:
                self._topics.clear()
            self._topics[topic] = known
        if not body:
            # Apache's Java consumer cannot read a record without a body.
            raise IllegalMessageError(topic, "its body is empty")
        if len(body) > self._max_size:
            raise MessageTooLargeError(topic, "a body", len(body), self._max_size)
        return known


def _check_topic(topic: str) -> None:
    try:
        validate_topic(topic)
    except ValueError as error:
        raise IllegalMessageError(topic, str(error)) from error
    if topic in TOPICS_CLOSED_TO_CLIENTS:
        raise IllegalMessageError(topic, "nobody but the broker may send to this topic")


def _check_batch_member(message: Message, first: Message) -> None:
    if message.topic != first.topic:
        raise IllegalMessageError(message.topic, f"a batch has one topic, this one began with {first.topic}")
    if is_retry_topic(message.topic):
        raise IllegalMessageError(message.topic, "a retry topic takes no batches")
    if message.delay_level > 0:
        raise IllegalMessageError(message.topic, "a batch cannot be delayed; send the message by itself")
    if (
        not TIMER_PROPERTIES.isdisjoint(message.properties)
        and PROPERTY_TIMER_OUT_MS not in message.properties
    ):
        raise IllegalMessageError(message.topic, "a batch cannot be timed; send the message by itself")
    if message.wait_store_ok != first.wait_store_ok:
        raise IllegalMessageError(message.topic, "the messages of a batch must agree in wait_store_ok")


def _properties_text(message: Message) -> str:
    try:
        text = encode_properties_text(message.properties)
    except LocalProtocolError as error:
        raise IllegalMessageError(message.topic, str(error)) from error
    # The limit is in bytes; a text without other than ASCII characters needs no second look.
    if len(text) * 4 > MAX_PROPERTIES_LENGTH:
        size = len(text.encode())
        if size > MAX_PROPERTIES_LENGTH:
            raise MessageTooLargeError(message.topic, "properties", size, MAX_PROPERTIES_LENGTH)
    return text
