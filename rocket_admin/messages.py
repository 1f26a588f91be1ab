"""Messages: send one, find stored ones by id, key or time, and send a stored one again."""

import asyncio
from bisect import bisect_left
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import chain
from typing import Final, Self

import msgspec

from rocket_admin.clients import producer_of, reader_of
from rocket_admin.conditions import Condition, matches_all
from rocket_admin.previews import body_text, preview
from rocket_admin.times import milliseconds, moment
from rocket_client import Admin, PullConsumer, SendResult, TopicNotFoundError, UnreadableBodyError
from rocket_remoting import RemotingError
from rocket_remoting.wire.message import Message, MessageExt, MessageQueue
from rocket_remoting.wire.message_id import parse_offset_id
from rocket_remoting.wire.properties import (
    PROPERTY_DLQ_ORIGIN_TOPIC,
    PROPERTY_KEYS,
    PROPERTY_ORIGIN_QUEUE_ID,
    PROPERTY_ORIGIN_QUEUE_OFFSET,
    PROPERTY_REAL_TOPIC,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_SHARDING_KEY,
    PROPERTY_TAGS,
    RESERVED_PROPERTIES,
)
from rocket_remoting.wire.sys_flag import COMPRESSED
from rocket_remoting.wire.topics import (
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRANS_HALF_TOPIC,
    is_dead_letter_topic,
    is_retry_topic,
    is_system_topic,
)

__all__ = [
    "CONTENT_TYPE",
    "IdSearchStep",
    "Progress",
    "SentMessage",
    "StoredMessage",
    "broker_names",
    "first_offset",
    "fresh_copy",
    "messages_between",
    "messages_with_id",
    "messages_with_key",
    "named",
    "origin_topic",
    "read_queue",
    "search_id",
    "send_message",
]

CONTENT_TYPE: Final = "contentType"
"""The property in which senders of this framework and of Spring's binders say what the body is."""

Progress = Callable[[int, int], None]
"""Called with the number of topics that were searched, and with that of all."""

_TOPICS_AT_ONCE: Final = 16
"""Topics that are searched at the same time."""
_PULL_SIZE: Final = 32

# What a message that is sent again must not have: what brokers, clients and former failures wrote.
_FAILURE: Final = frozenset({"FAILURE_TYPE", "FAILURE_MESSAGE", "FAILURE_PLACE"})
_KEPT: Final = frozenset({PROPERTY_KEYS, PROPERTY_TAGS, PROPERTY_SHARDING_KEY})
_NOT_SENT_AGAIN: Final = (
    RESERVED_PROPERTIES | _FAILURE | {PROPERTY_ORIGIN_QUEUE_ID, PROPERTY_ORIGIN_QUEUE_OFFSET, PROPERTY_DLQ_ORIGIN_TOPIC}
) - _KEPT
_NOT_SENT_AGAIN_PREFIXES: Final = ("TIMER_", "DLQ_ORIGIN_", "ORIGIN_", "__CRC32")


class StoredMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A record of a message in a topic.

    Attributes:
        topic: The topic.
        broker: The broker; absent if no broker is registered with the address in the record.
        queue: The queue.
        offset: The place in the queue, counted from 0.
        stored_at: When the broker stored the record.
        born_at: When the sender made the message.
        born_host: The sender's IP address.
        message_id: The id that the sender gave it; without one, the offset message id.
        offset_message_id: The id of this record: the broker's address and the place in its log.
        tags: The tag; absent without one.
        keys: The keys, separated by spaces; absent without one.
        reconsume_times: The number of redeliveries.
        content_type: The content type that the sender set; absent without one.
        body_size: Bytes of the body.
        body: The body as text, see `rocket_admin.previews`; binary ones in hexadecimal.
        properties: All properties, RocketMQ's own among them.
    """

    topic: str
    broker: str | None
    queue: int
    offset: int
    stored_at: datetime
    born_at: datetime
    born_host: str
    message_id: str
    offset_message_id: str
    tags: str | None
    keys: str | None
    reconsume_times: int
    content_type: str | None
    body_size: int
    body: str
    properties: Mapping[str, str]

    @classmethod
    def of(cls, message: MessageExt, broker_name: str | None = None, *, whole_body: bool = False) -> Self:
        """Return what there is to know about a record.

        Args:
            message: The message, as it was pulled or queried.
            broker_name: The broker's name, if the message does not have it.
            whole_body: Whether `body` is the whole body, and not a preview of one line.
        """
        body, content_type = bytes(message.body), message.properties.get(CONTENT_TYPE)
        return cls(
            topic=message.topic,
            broker=message.broker_name or broker_name,
            queue=message.queue_id,
            offset=message.queue_offset,
            stored_at=moment(message.store_timestamp),
            born_at=moment(message.born_timestamp),
            born_host=message.born_host[0],
            message_id=message.msg_id,
            offset_message_id=message.offset_message_id,
            tags=message.tags,
            keys=message.keys,
            reconsume_times=message.reconsume_times,
            content_type=content_type,
            body_size=len(body),
            body=body_text(body, content_type) if whole_body else preview(body, content_type),
            properties=dict(message.properties),
        )


class SentMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message that a broker has stored.

    Attributes:
        topic: The topic.
        broker: The broker.
        queue: The queue.
        offset: The place in the queue, counted from 0. Of a delayed message, the place where it waits.
        message_id: The id that the sender gave it.
        offset_message_id: The id of the record; absent if the broker has not told it.
        status: `SEND_OK`; another status says that the broker has stored the message, but not yet as safely as it
            should, such as `FLUSH_DISK_TIMEOUT`.
    """

    topic: str
    broker: str
    queue: int
    offset: int
    message_id: str
    offset_message_id: str | None
    status: str

    @classmethod
    def of(cls, result: SendResult) -> Self:
        """Return what a send has answered."""
        queue = result.message_queue
        return cls(
            topic=queue.topic,
            broker=queue.broker_name,
            queue=queue.queue_id,
            offset=result.queue_offset,
            message_id=result.msg_id,
            offset_message_id=result.offset_msg_id or None,
            status=result.status.name,
        )


class IdSearchStep(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one step of a search for an id in all topics.

    Attributes:
        messages: The records; empty if no topic has the id so far.
        searched: The topics that were searched, those of the steps before included.
        topics: The topics of applications.
        next: The topic at which the next step begins; None when the search has ended.
    """

    messages: Sequence[MessageExt]
    searched: int
    topics: int
    next: str | None


async def send_message(admin: Admin, message: Message, *, queue_id: int | None = None) -> SentMessage:
    """Send a message to a topic that exists.

    Args:
        admin: A running admin.
        message: The message.
        queue_id: The number of the queue, at the first broker that has it; by default any queue.

    Raises:
        TopicNotFoundError: The topic does not exist; brokers are not asked to create it.
        ValueError: No writable queue has this number.
        IllegalMessageError: The message is malformed or too large.
        SendError: No broker stored the message.
    """
    route = await admin.topic_route(message.topic)
    queue = None
    if queue_id is not None:
        queues = route.publish_queues
        queue = next((each for each in queues if each.queue_id == queue_id), None)
        if queue is None:
            numbers = sorted({each.queue_id for each in queues})
            raise ValueError(f"topic {message.topic!r} has no writable queue {queue_id}; it has {numbers}")
    async with producer_of(admin) as producer:
        return SentMessage.of(await producer.send(message, queue=queue))


def fresh_copy(message: MessageExt, topic: str, properties: Mapping[str, str] | None = None) -> Message:
    """Return a new message with the body, keys, tags and user properties of a stored one, to send it again.

    Counters of redeliveries, the causes of failures and delays are not copied. The send gives it an id of its own.

    Args:
        message: The stored message, with its body decompressed.
        topic: Where the new message goes.
        properties: Further properties.

    Raises:
        ValueError: The body is compressed, and damaged: whoever received a copy could not read it either.
    """
    if message.sys_flag & COMPRESSED:
        raise ValueError(f"the body of message {message.msg_id} is damaged: a copy could not be read either")
    kept = {
        name: value
        for name, value in message.properties.items()
        if name not in _NOT_SENT_AGAIN and not name.startswith(_NOT_SENT_AGAIN_PREFIXES)
    }
    return Message(topic, bytes(message.body), properties=kept | dict(properties or {}), flag=message.flag)


def origin_topic(message: Message) -> str:
    """Return the topic that a message was first sent to, also of records in retry, dead letter and delay topics."""
    properties, topic = message.properties, message.topic
    if topic in (SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC):
        topic = properties.get(PROPERTY_REAL_TOPIC, topic)
    if is_retry_topic(topic) or is_dead_letter_topic(topic):
        topic = properties.get(PROPERTY_RETRY_TOPIC, topic)
    if is_dead_letter_topic(topic):  # a dead letter whose own listener has failed
        topic = properties.get(PROPERTY_DLQ_ORIGIN_TOPIC, topic)
    return topic


async def messages_with_id(
    admin: Admin, message_id: str, topic: str | None = None, *, progress: Progress | None = None
) -> list[MessageExt]:
    """Return the records that an id names: one of an offset message id, usually one of the id that a sender gave.

    Both ids look alike: the id is taken as an offset message id if a registered broker has the address in it.

    Args:
        admin: A running admin.
        message_id: The id.
        topic: Where to look; by default in all topics of applications, see `search_id`.
        progress: Called with the number of topics that were searched, and with that of all; only without `topic`.

    Raises:
        TopicNotFoundError: The topic does not exist.
        RemotingError: A broker cannot be reached, or refuses.
    """
    if topic is None:
        return list((await search_id(admin, message_id, progress=progress)).messages)
    addresses = await broker_names(admin)
    record = await _record_of(admin, message_id, addresses)
    if record is not None:
        return [record]
    return named(await admin.query_by_unique_key(topic, message_id), addresses)


async def search_id(
    admin: Admin,
    message_id: str,
    begin: str = "",
    *,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> IdSearchStep:
    """Return the records that an id names, as far as one step of the search in all topics finds them.

    The topics of applications are searched in the order of their names until one has the id. That takes a request for
    each topic, and each broker. An offset message id is not searched: its record is read.

    Args:
        admin: A running admin.
        message_id: The id, see `messages_with_id`.
        begin: The topic at which the step begins: `next` of the step before.
        seconds: The seconds after which the step ends; some topics are searched in any case. None for no end.
        progress: Called with the number of topics that were searched, and with that of all.

    Raises:
        RemotingError: A broker cannot be reached, or refuses.
    """
    addresses = await broker_names(admin)
    record = await _record_of(admin, message_id, addresses)
    if record is not None:
        return IdSearchStep(messages=(record,), searched=0, topics=0, next=None)
    topics = sorted(each for each in await admin.topics() if not _is_passed_over(each))
    now = asyncio.get_running_loop().time
    until = None if seconds is None else now() + seconds
    found: list[MessageExt] = []
    at = bisect_left(topics, begin)
    while at < len(topics) and not found:
        if progress is not None:
            progress(at, len(topics))
        searches = (_having_id(admin, each, message_id) for each in topics[at : at + _TOPICS_AT_ONCE])
        found = named(chain.from_iterable(await asyncio.gather(*searches)), addresses)
        at = min(at + _TOPICS_AT_ONCE, len(topics))
        if until is not None and now() >= until:
            break
    next_topic = topics[at] if at < len(topics) and not found else None
    return IdSearchStep(messages=tuple(found), searched=at, topics=len(topics), next=next_topic)


async def _record_of(admin: Admin, message_id: str, addresses: Mapping[str, str]) -> MessageExt | None:
    """Return the record with an offset message id; None if the id is not one, or its record is not there any more."""
    with suppress(RemotingError):
        host, port, _ = parse_offset_id(message_id)
        if (f"[{host}]:{port}" if ":" in host else f"{host}:{port}") in addresses:
            return named([await admin.view_message(message_id)], addresses)[0]
    return None


async def _having_id(admin: Admin, topic: str, message_id: str) -> list[MessageExt]:
    try:
        return await admin.query_by_unique_key(topic, message_id)
    except TopicNotFoundError:  # deleted meanwhile
        return []


async def messages_with_key(
    admin: Admin,
    topic: str,
    key: str,
    *,
    begin: datetime | None = None,
    end: datetime | None = None,
    limit: int = 64,
) -> list[MessageExt]:
    """Return a topic's messages with a key, by the time at which they were stored.

    Args:
        admin: A running admin.
        topic: The topic.
        key: One of the message's keys.
        begin: The earliest time at which they were stored.
        end: The latest time.
        limit: The most messages that each broker returns. Brokers have a limit of their own.

    Raises:
        TopicNotFoundError: The topic does not exist.
        RemotingError: A broker cannot be reached, or refuses.
    """
    bounds = {"begin_ms": begin, "end_ms": end}
    given = {name: milliseconds(time) for name, time in bounds.items() if time is not None}
    found = await admin.query_by_key(topic, key, max_count=limit, **given)
    found.sort(key=lambda message: message.store_timestamp)
    return named(found, await broker_names(admin))


async def messages_between(
    admin: Admin,
    topic: str,
    begin: datetime,
    end: datetime,
    *,
    conditions: Sequence[Condition] = (),
    limit: int = 64,
) -> list[MessageExt]:
    """Return the first of a topic's messages that were stored between two times, sorted by that time.

    Args:
        admin: A running admin.
        topic: The topic.
        begin: The earliest time.
        end: The latest time.
        conditions: Only messages of which all of these are true.
        limit: The most messages.

    Raises:
        TopicNotFoundError: The topic does not exist.
        RemotingError: A broker cannot be reached, or refuses.
    """
    begin_ms, end_ms = milliseconds(begin), milliseconds(end)
    found: list[MessageExt] = []
    async with reader_of(admin) as reader:
        for queue in await reader.fetch_message_queues(topic):
            first, last = await first_offset(reader, queue, begin_ms), await reader.max_offset(queue)
            taken = 0
            async for message in read_queue(reader, queue, first, last):
                if message.store_timestamp > end_ms or taken == limit:
                    break
                if message.store_timestamp >= begin_ms and matches_all(conditions, message):
                    found.append(message)
                    taken += 1
    found.sort(key=lambda message: (message.store_timestamp, message.queue, message.queue_offset))
    return found[:limit]


async def read_queue(
    reader: PullConsumer,
    queue: MessageQueue,
    begin: int,
    end: int,
    *,
    skipped: Callable[[UnreadableBodyError], None] | None = None,
) -> AsyncGenerator[MessageExt, None]:
    """Yield the messages of a queue from one offset up to, not including, another one; deleted ones are missing.

    Args:
        reader: A running reader.
        queue: The queue.
        begin: The first offset.
        end: The offset behind the last message.
        skipped: Called for each message whose body is damaged or too large, in the order of the queue; without it, the
            first of them ends the reading.

    Raises:
        UnreadableBodyError: The body of a message is damaged or too large, and it cannot be skipped.
        RemotingError: The broker cannot be reached, or refuses.
    """
    while begin < end:
        try:
            result = await reader.pull(queue, begin, max_messages=min(_PULL_SIZE, end - begin))
        except UnreadableBodyError as error:
            if skipped is None:
                raise
            if error.message.queue_offset < end:
                skipped(error)
            begin = error.message.queue_offset + 1
            continue
        for message in result.messages:
            if message.queue_offset < end:
                yield message
        if result.next_begin_offset <= begin:  # the queue ends before `end`, because its topic was made anew
            return
        begin = result.next_begin_offset


async def first_offset(reader: PullConsumer, queue: MessageQueue, time_ms: int) -> int:
    """Return an offset from which on a queue has all messages that were stored at a time or later.

    Older messages may come before these. Brokers search by halving: of several messages of one millisecond they return
    any, and those of 4.9 return the nearest message, also if it is older. So this asks for the millisecond before.
    """
    return await reader.offset_for_timestamp(queue, time_ms - 1)


def _is_passed_over(topic: str) -> bool:
    return is_system_topic(topic) or is_retry_topic(topic) or is_dead_letter_topic(topic)


async def broker_names(admin: Admin) -> dict[str, str]:
    """Return the names of brokers by the addresses that they are registered with."""
    table = (await admin.cluster_info()).broker_addr_table
    return {address: name for name, data in table.items() for address in data.broker_addrs.values()}


def named(messages: Iterable[MessageExt], names: Mapping[str, str]) -> list[MessageExt]:
    """Set the broker's name of messages that were queried, and return them: an answer to a query does not have it.

    Args:
        messages: The messages.
        names: The names by address, see `broker_names`.
    """
    found = list(messages)
    for message in found:
        host, port = message.store_host
        message.broker_name = names.get(f"[{host}]:{port}" if ":" in host else f"{host}:{port}", "")
    return found
