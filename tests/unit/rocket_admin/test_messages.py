"""Messages on the bundled broker in virtual time: sent, found, followed."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from itertools import count
from typing import Any

import pytest

from rocket_admin.conditions import conditions_of
from rocket_admin.messages import (
    StoredMessage,
    fresh_copy,
    messages_between,
    messages_with_id,
    messages_with_key,
    send_message,
)
from rocket_admin.tailing import Tail, tail
from rocket_admin.times import moment
from rocket_client import Admin, TopicNotFoundError
from rocket_remoting import Message, MessageExt
from tests.end_to_end.client_stage import ClientStage, play


def administer(scene: Callable[[ClientStage, Admin], Awaitable[None]], **settings: str) -> None:
    """Run a scene with an admin and a topic `orders` of two queues."""

    async def with_admin(stage: ClientStage) -> None:
        async with stage.admin() as admin:
            await scene(stage, admin)

    play(with_admin, queues=2, **settings)


async def first(wanted: int, messages: AsyncIterator[MessageExt]) -> list[bytes]:
    """Return the bodies of the first messages."""
    numbers = count(1)
    found = []
    async for message in messages:
        found.append(bytes(message.body))
        if next(numbers) == wanted:
            break
    return found


def test_sent_message_is_found_by_its_ids_and_keys() -> None:
    """With everything that its record tells."""

    async def scene(stage: ClientStage, admin: Admin) -> None:
        message = Message(
            "orders", b'{"a": 1}', tags="hot", keys=["o-1", "o-2"], properties={"contentType": "application/json"}
        )
        sent = await send_message(admin, message, queue_id=1)
        assert (sent.topic, sent.queue, sent.offset, sent.status) == ("orders", 1, 0, "SEND_OK")
        assert sent.offset_message_id is not None
        found = [
            *await messages_with_id(admin, sent.message_id),
            *await messages_with_id(admin, sent.message_id, "orders"),
            *await messages_with_id(admin, sent.offset_message_id),
            *await messages_with_key(admin, "orders", "o-2"),
        ]
        (stored,) = {str(StoredMessage.of(each)): StoredMessage.of(each) for each in found}.values()
        assert len(found) == 4
        assert (stored.broker, stored.queue, stored.body, stored.body_size) == ("broker-a", 1, '{"a": 1}', 8)
        assert (stored.keys, stored.tags, stored.content_type) == ("o-1 o-2", "hot", "application/json")
        assert stored.message_id == sent.message_id
        assert await messages_with_id(admin, "7F000001" * 4) == []
        assert await messages_with_id(admin, "nonsense") == []

    administer(scene)


def test_message_is_not_sent_to_a_topic_or_queue_that_is_not_there() -> None:
    """Brokers would create the topic, though its name may be a mistake."""

    async def scene(stage: ClientStage, admin: Admin) -> None:
        with pytest.raises(TopicNotFoundError):
            await send_message(admin, Message("oders", b"x"))
        with pytest.raises(ValueError, match=r"no writable queue 7; it has \[0, 1\]"):
            await send_message(admin, Message("orders", b"x"), queue_id=7)
        assert "oders" not in await admin.topics()

    administer(scene)


def test_messages_between_two_times() -> None:
    """From all queues by time, filtered and bounded."""

    async def scene(stage: ClientStage, admin: Admin) -> None:
        times = []
        for number in range(6):
            times.append(moment(stage.time.clock.now_ms()))
            await stage.send([str(number).encode()], queue=number % 2)
            await asyncio.sleep(10)

        async def bodies(begin: int, end: int, **more: Any) -> list[bytes]:
            return [
                bytes(each.body) for each in await messages_between(admin, "orders", times[begin], times[end], **more)
            ]

        assert await bodies(1, 4) in ([b"1", b"2", b"3"], [b"1", b"2", b"3", b"4"])
        assert await bodies(0, 5, limit=2) == [b"0", b"1"]
        assert await bodies(0, 5, conditions=conditions_of(["body=3"])) == [b"3"]

    administer(scene)


def test_tail_follows_all_queues_from_now_on() -> None:
    """Also queues that are added later."""

    async def scene(stage: ClientStage, admin: Admin) -> None:
        await stage.send([b"old"])
        async with aclosing(tail(admin, Tail(topic="orders"))) as messages:
            waiting = asyncio.create_task(first(3, messages))
            await asyncio.sleep(1)
            await stage.send([b"a"], queue=0)
            await asyncio.sleep(1)
            await stage.send([b"b"], queue=1)
            await stage.topic("orders", queues=3)
            await asyncio.sleep(1)
            await stage.send([b"c"], queue=2)
            assert await waiting == [b"a", b"b", b"c"]

    administer(scene)


def test_tail_from_the_past_ends_when_it_does_not_follow() -> None:
    """From a time, from an offset of each queue, by tags and conditions."""

    async def scene(stage: ClientStage, admin: Admin) -> None:
        async with stage.producer() as producer:
            for number in range(3):
                since = moment(stage.time.clock.now_ms())
                await producer.send(Message("orders", str(number).encode(), tags="hot" if number else "cold"))
                await asyncio.sleep(10)

        async def bodies(**more: Any) -> list[bytes]:
            return sorted([bytes(each.body) async for each in tail(admin, Tail(topic="orders", follows=False, **more))])

        assert await bodies() == []
        assert await bodies(offset=0) == [b"0", b"1", b"2"]
        assert await bodies(since=since) == [b"2"]
        assert await bodies(offset=0, tags="hot") == [b"1", b"2"]
        assert await bodies(offset=0, conditions=conditions_of(["body!=1"])) == [b"0", b"2"]
        assert len(await bodies(offset=1)) == 1

    administer(scene)


def test_tail_of_a_missing_topic_fails() -> None:
    """It does not wait for the topic."""

    async def scene(stage: ClientStage, admin: Admin) -> None:
        with pytest.raises(TopicNotFoundError):
            await first(1, tail(admin, Tail(topic="oders")))

    administer(scene)


def test_copy_that_is_sent_again_has_no_traces_of_former_deliveries() -> None:
    """Keys, tags and user properties stay."""
    properties = {
        "KEYS": "k",
        "TAGS": "t",
        "__SHARDINGKEY": "s",
        "colour": "red",
        "UNIQ_KEY": "U",
        "DELAY": "3",
        "RETRY_TOPIC": "orders",
        "ORIGIN_MESSAGE_ID": "O",
        "ORIGIN_QUEUE_ID": "1",
        "FAILURE_TYPE": "ValueError",
        "TIMER_OUT_MS": "1",
        "DLQ_ORIGIN_TOPIC": "orders",
        "MAX_RECONSUME_TIMES": "3",
    }
    copy = fresh_copy(MessageExt("%DLQ%g", b"x", properties=properties, flag=3), "orders", {"extra": "1"})
    assert copy.properties == {"KEYS": "k", "TAGS": "t", "__SHARDINGKEY": "s", "colour": "red", "extra": "1"}
    assert (copy.topic, copy.body, copy.flag) == ("orders", b"x", 3)
