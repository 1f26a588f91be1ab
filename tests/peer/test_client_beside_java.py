"""Our client and Apache's Java client on one broker, Apache's and ours: each reads what the other writes."""

import asyncio
from typing import Any

from rocket_client import (
    ConsumeFromWhere,
    Producer,
    ProducerSettings,
    PushConsumer,
    PushConsumerSettings,
    select_by_hash,
)
from rocket_remoting import Message, MessageQueue
from tests.end_to_end.client_stage import Heard, until
from tests.peer.stage import Stage, eventually


def consumer(
    stage: Stage, topic: str, group: str, heard: Heard, tags: str = "*", **settings: Any
) -> PushConsumer:
    settings = {"consume_from_where": ConsumeFromWhere.FIRST_OFFSET, **settings}
    made = PushConsumer(group, PushConsumerSettings(name_servers=stage.name_server, **settings))
    made.subscribe(topic, tags)
    made.listen_concurrently(heard)
    return made


def producer(stage: Stage) -> Producer:
    return Producer("python-shop", ProducerSettings(name_servers=stage.name_server))


def test_java_reads_what_we_write(stage: Stage) -> None:
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


def test_we_read_what_java_writes(stage: Stage) -> None:
    """Tags, keys, properties, flag, id; compressed bodies and batches too."""
    topic = stage.topic()
    java = stage.producer()
    large = "large" * 5000
    sent = java.send(topic, "small", tags="T", keys="k1 k2", flag=7, properties={"table": "4"})
    java.send(topic, large)
    java.send(topic, "one", "two", mode="batch")
    heard = Heard()

    async def hear() -> None:
        async with consumer(stage, topic, stage.name("group"), heard):
            await heard.count(4, patience=20)

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
    heard = Heard()

    async def send_and_hear() -> None:
        async with producer(stage) as ours, consumer(stage, topic, stage.name("group"), heard):
            for number, key in enumerate(keys):
                await ours.send(Message(topic, b"ours %d" % number), selector=select_by_hash, argument=key)
            await heard.count(2 * len(keys), patience=20)

    asyncio.run(send_and_hear())
    queues: dict[bytes, set[int]] = {}
    for message in heard.messages:
        queues.setdefault(message.body.split()[1], set()).add(message.queue_id)
    assert all(len(found) == 1 for found in queues.values())


def test_java_and_we_share_a_groups_queues(stage: Stage) -> None:
    """One member is Java's, one ours: every queue has one owner, every message is heard once."""
    topic, group = stage.topic(), stage.name("group")
    java = stage.consumer(topic, group)
    eventually(lambda: java.assigned(topic), lambda queues: len(queues) == 4)
    heard = Heard()

    async def share() -> None:
        async with consumer(stage, topic, group, heard) as ours, producer(stage) as sender:

            def mine() -> set[int]:
                return {queue.queue_id for queue in ours.assigned if queue.topic == topic}

            await until(lambda: len(mine()) == 2, seconds=10)
            await asyncio.to_thread(eventually, lambda: java.assigned(topic), lambda queues: len(queues) == 2)
            assert set(java.assigned(topic)) | mine() == {0, 1, 2, 3}
            for number in range(40):
                await sender.send(
                    Message(topic, b"%d" % number), queue=MessageQueue(topic, "broker-a", number % 4)
                )
            await heard.count(20, patience=20)
            await asyncio.to_thread(java.take, 20)

    asyncio.run(share())
    bodies = heard.bodies + [message.body for message in java.received]
    assert sorted(bodies) == sorted(b"%d" % number for number in range(40))
    eventually(lambda: java.assigned(topic), lambda queues: len(queues) == 4)


def test_a_message_we_give_back_can_reach_java(stage: Stage) -> None:
    """Failed by our member, heard again by Java's of the same group, under its own topic and id."""
    topic, group = stage.topic(), stage.name("group")
    heard = Heard(lambda message: ValueError("no"))

    async def fail() -> str:
        async with consumer(stage, topic, group, heard):
            async with producer(stage) as ours:
                result = await ours.send(Message(topic, b"x", keys="k"))
            await heard.count(1, patience=20)
        return result.msg_id

    msg_id = asyncio.run(fail())
    (again,) = stage.consumer(topic, group).take(1)
    assert (again.topic, again.id, again.keys, again.reconsume_times) == (topic, msg_id, "k", 1)
