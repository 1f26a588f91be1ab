"""Our client and Apache's Java client on Apache's broker and ours: each reads the other's messages."""

import asyncio
import time
from itertools import pairwise
from typing import Any, NamedTuple

from rocket_client import (
    ConsumeContext,
    ConsumeFromWhere,
    Producer,
    ProducerSettings,
    PushConsumer,
    PushConsumerSettings,
    RetryLater,
    select_by_hash,
)
from rocket_remoting import Message, MessageExt, MessageQueue
from tests.end_to_end.client_stage import RecordingListener, until
from tests.peer.stage import ANSWER_TIMEOUT, SEND_TIMEOUT, Stage, eventually


def consumer(
    stage: Stage, topic: str, group: str, heard: RecordingListener, tags: str = "*", **settings: Any
) -> PushConsumer:
    settings = {
        "consume_from_where": ConsumeFromWhere.FIRST_OFFSET,
        "request_timeout": ANSWER_TIMEOUT,
        **settings,
    }
    made = PushConsumer(group, PushConsumerSettings(name_servers=stage.name_server, **settings))
    made.subscribe(topic, tags)
    made.listen_concurrently(heard)
    return made


def producer(stage: Stage) -> Producer:
    settings = ProducerSettings(name_servers=stage.name_server, send_timeout=SEND_TIMEOUT)
    return Producer("python-shop", settings)


def test_java_reads_our_messages(stage: Stage) -> None:
    """Tags, keys, properties, flag, id; compressed bodies and batches too."""
    topic = stage.topic()
    java = stage.consumer(topic)
    large = b"large" * 5000

    async def send() -> str:
        async with producer(stage) as ours:
            result = await ours.send(
                Message(topic, b"small", tags="T", keys=["k1", "k2"], properties={"table": "4"}, flag=7)
            )
            await ours.send(Message(topic, large))
            await ours.send_batch([Message(topic, b"one", keys="k3"), Message(topic, b"two")])
            return result.msg_id

    msg_id = asyncio.run(send())
    messages = {message.body: message for message in java.take(4)}
    assert set(messages) == {b"small", large, b"one", b"two"}
    small = messages[b"small"]
    assert (small.id, small.tags, small.keys, small.flag) == (msg_id, "T", "k1 k2", 7)
    assert small.properties["table"] == "4"
    assert messages[b"one"].keys == "k3"


def test_we_read_javas_messages(stage: Stage) -> None:
    """Tags, keys, properties, flag, id; compressed bodies and batches too."""
    topic = stage.topic()
    java = stage.producer()
    large = "large" * 5000
    sent = java.send(topic, "small", tags="T", keys="k1 k2", flag=7, properties={"table": "4"})
    java.send(topic, large)
    java.send(topic, "one", "two", mode="batch")
    heard = RecordingListener()

    async def hear() -> None:
        async with consumer(stage, topic, stage.name("group"), heard):
            await heard.count(4, patience=60)

    asyncio.run(hear())
    messages = {message.body: message for message in heard.messages}
    assert set(messages) == {b"small", large.encode(), b"one", b"two"}
    small = messages[b"small"]
    assert (small.tags, small.keys, small.flag) == ("T", "k1 k2", 7)
    assert small.properties["table"] == "4"
    assert small.msg_id in str(sent)


def test_both_select_the_same_queue_for_a_key(stage: Stage) -> None:
    """`select_by_hash` and SelectMessageQueueByHash."""
    topic = stage.topic(queues=5)
    keys = ["order-7", "N12345", "", "咖啡", "a" * 300]
    stage.producer().send_by_key(topic, [(key, f"java {number}") for number, key in enumerate(keys)])
    heard = RecordingListener()

    async def send_and_hear() -> None:
        async with producer(stage) as ours, consumer(stage, topic, stage.name("group"), heard):
            for number, key in enumerate(keys):
                await ours.send(Message(topic, b"ours %d" % number), selector=select_by_hash, argument=key)
            await heard.count(2 * len(keys), patience=60)

    asyncio.run(send_and_hear())
    queues: dict[bytes, set[int]] = {}
    for message in heard.messages:
        queues.setdefault(message.body.split()[1], set()).add(message.queue_id)
    assert all(len(found) == 1 for found in queues.values())


def test_java_and_we_share_a_groups_queues(stage: Stage) -> None:
    """Of a Java member and ours, each queue has one owner and each message one delivery."""
    topic, group = stage.topic(), stage.name("group")
    java = stage.consumer(topic, group)
    eventually(lambda: java.assigned(topic), lambda queues: len(queues) == 4)
    heard = RecordingListener()

    async def share() -> None:
        async with consumer(stage, topic, group, heard) as ours, producer(stage) as sender:

            def mine() -> set[int]:
                return {queue.queue_id for queue in ours.assigned if queue.topic == topic}

            one, other = await asyncio.to_thread(
                eventually,
                lambda: (java.assigned(topic), sorted(mine())),
                lambda both: len(both[0]) == 2 and sorted(both[0] + both[1]) == [0, 1, 2, 3],
            )
            assert (len(one), sorted(one + other)) == (2, [0, 1, 2, 3])
            for number in range(40):
                await sender.send(Message(topic, b"%d" % number), queue=MessageQueue(topic, "broker-a", number % 4))
            await heard.count(20, patience=60)
            await asyncio.to_thread(java.take, 20)

    asyncio.run(share())
    bodies = heard.bodies + [message.body for message in java.received]
    assert sorted(bodies) == sorted(b"%d" % number for number in range(40))
    eventually(lambda: java.assigned(topic), lambda queues: len(queues) == 4)


class Call(NamedTuple):
    """A listener call with one message: beginning and end in ms since 1970, and the member."""

    begin: int
    end: int
    owner: str
    queue: int
    offset: int


def test_orderly_queue_has_one_owner_java_or_ours(stage: Stage) -> None:
    """Java's member joins and leaves while ours works: calls of a queue never overlap and stay in order."""
    topic, group = stage.topic(), stage.name("group")
    calls: list[Call] = []
    pause_ms = 30

    async def listen(messages: list[MessageExt], context: ConsumeContext) -> None:
        begin = time.time_ns() // 1_000_000
        await asyncio.sleep(pause_ms / 1000)
        (message,) = messages
        calls.append(Call(begin, time.time_ns() // 1_000_000, "ours", message.queue_id, message.queue_offset))

    def java_comes_and_goes() -> None:
        java = stage.consumer(topic, group, mode="orderly", pauseMs=pause_ms)
        eventually(lambda: java.rebalance() or java.assigned(topic), lambda queues: len(queues) == 2)
        java.take(len(java.received) + 50)
        java.stop()
        calls.extend(Call(m.at, m.at + pause_ms, "Java's", m.queue, m.offset) for m in java.received)

    def three_times() -> None:
        for _ in range(3):
            java_comes_and_goes()

    async def share() -> int:
        settings = PushConsumerSettings(
            name_servers=stage.name_server, consume_from_where=ConsumeFromWhere.FIRST_OFFSET
        )
        ours = PushConsumer(group, settings)
        ours.subscribe(topic)
        ours.listen_orderly(listen)
        sent = 0
        async with ours, producer(stage) as sender:
            comings = asyncio.create_task(asyncio.to_thread(three_times))
            while not comings.done():
                await sender.send(Message(topic, b"x"), queue=MessageQueue(topic, "broker-a", sent % 4))
                sent += 1
                await asyncio.sleep(pause_ms / 4000)  # messages keep arriving during the rebalances
            await comings
            await until(lambda: len({call[3:] for call in calls}) == sent, seconds=90)
        return sent

    assert asyncio.run(share()) > 150
    assert {call.owner for call in calls} == {"ours", "Java's"}
    for queue in range(4):
        of_queue = sorted(call for call in calls if call.queue == queue)
        both = [pair for pair in pairwise(of_queue) if pair[0].owner != pair[1].owner and pair[1].begin < pair[0].end]
        assert not both
        offsets = [call.offset for call in of_queue]
        assert list(dict.fromkeys(offsets)) == sorted({*offsets})


def test_message_sent_back_by_us_can_reach_java(stage: Stage) -> None:
    """Failed by our member, redelivered to Java's of the same group, under its own topic and id."""
    topic, group = stage.topic(), stage.name("group")
    heard = RecordingListener(lambda message: RetryLater(delay_level=2))  # 2 s: we have left the group by then

    async def fail() -> str:
        async with consumer(stage, topic, group, heard):
            async with producer(stage) as ours:
                result = await ours.send(Message(topic, b"x", keys="k"))
            await heard.count(1, patience=60)
        return result.msg_id

    msg_id = asyncio.run(fail())
    (again,) = stage.consumer(topic, group).take(1)
    assert (again.topic, again.id, again.keys) == (topic, msg_id, "k")
    assert again.reconsume_times >= 1
