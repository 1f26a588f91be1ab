"""The conversion of messages into send requests: checks, unique ids, compression; and of responses into results.

Errors of a message are found here, before anything is written to a connection.
"""

from collections.abc import Sequence
from typing import NamedTuple

from rocket_client.core.call import refusal
from rocket_client.core.send_result import STATUS_OF_RESPONSE, SendResult
from rocket_client.errors import IllegalMessageError, MessageTooLargeError
from rocket_client.namespace import Namespace
from rocket_client.settings import ProducerSettings
from rocket_remoting.clock import Clock
from rocket_remoting.wire.batch import encode_batch, encode_entries
from rocket_remoting.wire.codes import RequestCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.compression import CompressionType, compress
from rocket_remoting.wire.errors import LocalProtocolError
from rocket_remoting.wire.headers import SendMessageRequestHeaderV2, SendMessageResponseHeader
from rocket_remoting.wire.message import Message, MessageQueue
from rocket_remoting.wire.message_id import UniqueIdGenerator
from rocket_remoting.wire.properties import (
    MAX_PROPERTIES_LENGTH,
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_INSTANCE_ID,
    PROPERTY_MESSAGE_REPLY_TO_CLIENT,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_TRANSACTION_PREPARED,
    PROPERTY_UNIQUE_KEY,
    PROPERTY_WAIT_STORE_MSG_OK,
    TIMER_PROPERTIES,
    encode_properties_text,
)
from rocket_remoting.wire.sys_flag import COMPRESSED
from rocket_remoting.wire.topics import TOPICS_CLOSED_TO_CLIENTS, is_retry_topic, validate_topic

_MAX_KNOWN_TOPICS = 10_000
_ZLIB = COMPRESSED | CompressionType.ZLIB.sys_flag
_ALONE = TIMER_PROPERTIES | {
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_TRANSACTION_PREPARED,
    PROPERTY_WAIT_STORE_MSG_OK,
    PROPERTY_MESSAGE_REPLY_TO_CLIENT,
}
"""The properties of a message that shares no request. Brokers refuse batches with delayed messages, and read whether to
wait for the flush from the request and not from its messages. A message that asks for a reply needs the cluster's name,
which not every broker adds to the messages of a batch."""


class Outgoing(NamedTuple):
    """A message or a batch, ready to be sent to any queue of its topic."""

    code: int
    topic: str
    """The topic as brokers know it, with the namespace."""
    body: bytes
    properties: str
    flag: int
    sys_flag: int
    born_timestamp: int
    msg_id: str
    reconsume_times: int = 0
    max_reconsume_times: int | None = None
    may_share: bool = False
    """Whether the message may be sent in one request with others: it is not compressed, delayed or of a transaction."""


class OutgoingMessages:
    """Prepares the messages of one producer, under its settings."""

    def __init__(self, group: str, settings: ProducerSettings, clock: Clock, unique_ids: UniqueIdGenerator) -> None:
        self._group = group
        self._clock = clock
        self._create_id = unique_ids.create
        self._max_size = settings.max_message_size
        self._compress_from = settings.compress_body_threshold
        self._compress_level = settings.compress_level
        self._default_topic = settings.create_topic_key
        self._default_queues = settings.default_topic_queue_nums
        self.namespace = Namespace(settings.namespace)
        """The namespace that is put before topics."""
        self._instance_id = self.namespace.name
        # Legal topics, with their names as brokers know them: a topic is checked once and not with each message.
        self._topics: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"OutgoingMessages({self._group!r})"

    def message(self, message: Message, *, compression: int = 0) -> Outgoing:
        """Prepare one message, and set its unique id unless it has one.

        Args:
            message: The message.
            compression: The system flag's bits for a body that is compressed already; 0 if it is not.

        Raises:
            IllegalMessageError: The message is malformed or too large.
        """
        body, properties = message.body, message.properties
        topic = self._check(message.topic, body)
        msg_id = properties.get(PROPERTY_UNIQUE_KEY)
        text = None
        if msg_id is None:
            msg_id = self._create_id()
            if not properties and not self._instance_id:
                text = f"{PROPERTY_UNIQUE_KEY}\x01{msg_id}\x02"  # needs no check
            properties[PROPERTY_UNIQUE_KEY] = msg_id
        if self._instance_id:
            properties[PROPERTY_INSTANCE_ID] = self._instance_id
        sys_flag = compression
        if not compression and len(body) >= self._compress_from:
            compressed = compress(body, CompressionType.ZLIB, self._compress_level)
            # A body that does not shrink would be larger than the limit that it was checked against.
            if len(compressed) < len(body):
                body, sys_flag = compressed, _ZLIB
        return Outgoing(
            RequestCode.SEND_MESSAGE_V2,
            topic,
            body,
            text or _properties_text(message),
            message.flag,
            sys_flag,
            self._clock.now_ms(),
            msg_id,
            may_share=not sys_flag and topic[0] != "%" and _ALONE.isdisjoint(properties),
        )

    def batch(self, messages: Sequence[Message]) -> Outgoing:
        """Prepare several messages of one topic as one request, and set their unique ids unless they have them.

        Raises:
            IllegalMessageError: The messages cannot be sent together, or one of them is malformed or too large.
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

    def shared(self, messages: Sequence[Outgoing]) -> Outgoing:
        """Return one request for several messages of one topic that may share it."""
        first = messages[0]
        body = encode_entries([(each.flag, each.body, each.properties.encode()) for each in messages])
        return Outgoing(RequestCode.SEND_BATCH_MESSAGE, first.topic, body, "", 0, 0, first.born_timestamp, "")

    def header(self, outgoing: Outgoing, broker_name: str, queue_id: int) -> SendMessageRequestHeaderV2:
        """Return the request header of one attempt."""
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

    def result(self, outgoing: Outgoing, target: MessageQueue, response: RemotingCommand, address: str) -> SendResult:
        """Return the result of one attempt.

        Raises:
            ResponseError: The broker at `address` refused the message.
        """
        status = STATUS_OF_RESPONSE.get(response.code)
        if status is None:
            raise refusal(response, address, outgoing.code)
        header = response.header(SendMessageResponseHeader)
        if header.queue_id != target.queue_id:
            target = MessageQueue(outgoing.topic, target.broker_name, header.queue_id)
        return SendResult(
            status,
            outgoing.msg_id,
            header.msg_id,
            self.namespace.unwrap_queue(target),
            header.queue_offset,
            header.transaction_id,
            None if header.trace_on is False else header.msg_region,
        )

    def shared_results(
        self, messages: Sequence[Outgoing], target: MessageQueue, response: RemotingCommand, address: str
    ) -> list[SendResult]:
        """Return the result of each message of a request that `shared` has made.

        Raises:
            ResponseError: The broker at `address` refused the request.
            RemoteProtocolError: The answer cannot be read.
        """
        whole = self.result(messages[0]._replace(code=RequestCode.SEND_BATCH_MESSAGE), target, response, address)
        offset_ids = whole.offset_msg_id.split(",")
        if len(offset_ids) != len(messages):  # a broker may give a batch one id
            offset_ids = [whole.offset_msg_id] * len(messages)
        return [
            SendResult(
                whole.status, message.msg_id, offset_id, whole.message_queue, offset, whole.transaction_id, whole.region
            )
            for offset, (message, offset_id) in enumerate(zip(messages, offset_ids, strict=True), whole.queue_offset)
        ]

    def _check(self, topic: str, body: bytes) -> str:
        """Return the topic as brokers know it.

        Raises:
            IllegalMessageError: The topic is illegal, or the body is empty or too large.
        """
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
        raise IllegalMessageError(topic, "only the broker may send to this topic")


def _check_batch_member(message: Message, first: Message) -> None:
    if message.topic != first.topic:
        raise IllegalMessageError(message.topic, f"a batch has one topic; its first message has {first.topic}")
    if is_retry_topic(message.topic):
        raise IllegalMessageError(message.topic, "batches cannot be sent to a retry topic")
    if message.delay_level > 0:
        raise IllegalMessageError(message.topic, "a batch cannot be delayed; send the message by itself")
    if not TIMER_PROPERTIES.isdisjoint(message.properties) and PROPERTY_TIMER_OUT_MS not in message.properties:
        raise IllegalMessageError(message.topic, "a batch cannot be timed; send the message by itself")
    if message.wait_store_ok != first.wait_store_ok:
        raise IllegalMessageError(message.topic, "all messages of a batch must have the same wait_store_ok")


def _properties_text(message: Message) -> str:
    try:
        text = encode_properties_text(message.properties)
    except LocalProtocolError as error:
        raise IllegalMessageError(message.topic, str(error)) from error
    # The limit is in bytes: a character has at most four of them, so most texts need not be encoded here.
    if len(text) * 4 > MAX_PROPERTIES_LENGTH:
        size = len(text.encode())
        if size > MAX_PROPERTIES_LENGTH:
            raise MessageTooLargeError(message.topic, "properties", size, MAX_PROPERTIES_LENGTH)
    return text
