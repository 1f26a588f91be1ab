"""Our client and Apache's Java client in one namespace, on Apache's broker and ours, share topics and groups."""

import asyncio
import itertools
from typing import Any

from rocket_client import (
    ConsumeFromWhere,
    LocalTransactionState,
    Producer,
    ProducerSettings,
    PushConsumer,
    PushConsumerSettings,
    Reject,
    RetryLater,
    TransactionProducer,
    TransactionProducerSettings,
)
from rocket_remoting import Message, MessageExt
from tests.end_to_end.client_stage import RecordingListener
from tests.peer.stage import SEND_TIMEOUT, Stage, eventually, reply_to

SPACE = "left"
"""The namespace."""
PATIENCE = 60.0

_numbers = itertools.count(1)


def inside(stage: Stage) -> dict[str, Any]:
    """Return the settings of a member of the namespace."""
    return {"name_servers": stage.name_server, "namespace": SPACE}


def topic_in(stage: Stage) -> str:
    """Return a new topic of one queue, by its name within the namespace."""
    topic = stage.name("topic")
    stage.client.create_topic(stage.name_server, stage.address, f"{SPACE}%{topic}", 1)
    return topic


def producer(stage: Stage) -> Producer:
    settings = ProducerSettings(send_timeout=SEND_TIMEOUT, **inside(stage))
    return Producer(f"python-{next(_numbers)}", settings)


def listening(stage: Stage, topic: str, group: str, heard: RecordingListener) -> PushConsumer:
    settings = PushConsumerSettings(consume_from_where=ConsumeFromWhere.FIRST_OFFSET, **inside(stage))
    made = PushConsumer(group, settings)
    made.subscribe(topic)
    made.listen_concurrently(heard)
    return made


def test_each_reads_the_others_messages(stage: Stage) -> None:
    """Under names without the namespace, which both write into a property of single messages and batches."""
    topic = topic_in(stage)
    java = stage.consumer(topic, namespace=SPACE)
    javas = stage.producer(namespace=SPACE)
    javas.send(topic, "java's")
    javas.send(topic, "java's in a batch", "another", mode="batch")
    heard = RecordingListener()

    async def exchange() -> None:
        async with producer(stage) as ours, listening(stage, topic, stage.name("group"), heard):
            await ours.send(Message(topic, b"ours"))
            await ours.send_batch([Message(topic, b"ours in a batch"), Message(topic, b"one more")])
            await heard.count(6, patience=PATIENCE)

    asyncio.run(exchange())
    bodies = {"java's", "java's in a batch", "another", "ours", "ours in a batch", "one more"}
    assert {(m.topic, m.text, m.properties["INSTANCE_ID"]) for m in java.take(6)} == {
        (topic, body, SPACE) for body in bodies
    }
    assert {(m.topic, m.body.decode(), m.properties["INSTANCE_ID"]) for m in heard.messages} == {
        (topic, body, SPACE) for body in bodies
    }


def test_messages_failed_by_one_are_redelivered_to_the_other(stage: Stage) -> None:
    """By the retry topic of their group, with the original topic."""
    topic, group = topic_in(stage), stage.name("group")
    heard = RecordingListener(lambda message: RetryLater(delay_level=2))  # 2 s: we have left the group by then

    async def fail() -> None:
        async with producer(stage) as ours, listening(stage, topic, group, heard):
            await ours.send(Message(topic, b"bad"))
            await heard.count(1, patience=PATIENCE)

    asyncio.run(fail())
    (again,) = stage.consumer(topic, group, namespace=SPACE).take(1, timeout=PATIENCE)
    assert (again.topic, again.text) == (topic, "bad")
    assert again.reconsume_times >= 1
    assert again.properties["RETRY_TOPIC"] == f"{SPACE}%{topic}"


def test_dead_letter_is_read_by_the_other(stage: Stage) -> None:
    """From ``%DLQ%`` and the group, whose full name has the namespace in the middle."""
    topic, group = topic_in(stage), stage.name("group")
    heard = RecordingListener(lambda message: Reject("never"))

    async def fail() -> None:
        async with producer(stage) as ours, listening(stage, topic, group, heard):
            await ours.send(Message(topic, b"bad"))
            await heard.count(1, patience=PATIENCE)

    asyncio.run(fail())
    (letter,) = stage.consumer(f"%DLQ%{group}", namespace=SPACE).take(1, timeout=PATIENCE)
    assert (letter.topic, letter.text) == (f"%DLQ%{group}", "bad")
    assert f"%DLQ%{SPACE}%{group}" in stage.mqadmin("topicList").split()


def test_transaction_is_checked_within_the_namespace(stage: Stage) -> None:
    """The broker asks a member of the namespace's group, which sees the topic without it;

    Java receives committed messages.
    """
    topic, seen = topic_in(stage), list[str]()
    java = stage.consumer(topic, namespace=SPACE)

    async def begin() -> None:
        async def check(message: MessageExt) -> LocalTransactionState:
            seen.append(message.topic)
            return LocalTransactionState.COMMIT

        settings = TransactionProducerSettings(**inside(stage))
        async with TransactionProducer(stage.name("till"), settings, check, topics=[topic]) as till:
            await (await till.begin(Message(topic, b"told"))).commit()
            await (await till.begin(Message(topic, b"asked"))).unknown()
            await asyncio.to_thread(java.wait_for, lambda: {m.text for m in java.received} >= {"asked", "told"})

    asyncio.run(begin())
    # If a check begins before the last commit is recorded, the message is delivered again.
    assert {m.text for m in java.received} == {"asked", "told"}
    assert set(seen) == {topic}


def test_each_answers_the_others_requests(stage: Stage) -> None:
    """Ours reply to the cluster's reply topic; Java's to one in the namespace, which the broker creates."""
    topic, other = topic_in(stage), topic_in(stage)
    replying = stage.producer(namespace=SPACE)
    stage.consumer(other, replyBy=replying.name, namespace=SPACE)
    asking = stage.producer(namespace=SPACE, group=stage.name("asking"), heartbeatMs=100)

    async def ask_and_answer() -> tuple[bytes, str]:
        async def answer(message: MessageExt) -> None:
            await ours.reply(message, b"re: " + message.body)

        heard = RecordingListener(answer)
        async with producer(stage) as ours, listening(stage, topic, stage.name("group"), heard):
            reply = await ours.request(Message(other, b"how are you?"), timeout=PATIENCE)
            reported = await asyncio.to_thread(reply_to, asking, topic, "and you?")
            return reply.body, reported.text

    assert asyncio.run(ask_and_answer()) == (b"re: how are you?", "re: and you?")
    replies = f"{SPACE}%DefaultCluster_REPLY_TOPIC"
    eventually(lambda: stage.mqadmin("topicList").split(), lambda topics: replies in topics)
