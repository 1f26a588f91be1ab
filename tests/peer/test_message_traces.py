"""Message traces of Apache's clients read by ours, and ours read by mqadmin, on Apache's broker and on ours."""

import asyncio

import pytest

from rocket_client import ConsumeFromWhere, Producer, ProducerSettings, PushConsumer, PushConsumerSettings
from rocket_remoting import Message, MessageExt
from rocket_remoting.wire.message_trace import TraceType
from tests.peer.conftest import of_version
from tests.peer.stage import SEND_TIMEOUT, Stage, eventually


def on(*stages: tuple[str, str]) -> pytest.MarkDecorator:
    """Run a test with the client of a version on one kind of broker, for each of these pairs."""
    return pytest.mark.parametrize("stage", [of_version(*stage) for stage in stages], indirect=True)


WHOLE = [TraceType.PUB, TraceType.SUB_BEFORE, TraceType.SUB_AFTER]


@on(("5.3.3", "apache"), ("4.9.7", "bundled"), ("5.3.3", "bundled"))
def test_javas_traces_are_read(stage: Stage) -> None:
    """Those of the send and of the consumption, whatever the client's version and the broker."""
    topic, traces, group = stage.topic(queues=1), stage.topic(queues=1), stage.name("group")
    producer = stage.producer(traceTopic=traces)
    consumer = stage.consumer(topic, group, traceTopic=traces)
    (sent,) = producer.send(topic, "coffee", tags="hot", keys="k1")
    consumer.take(1)

    # Before either stops: Java's client writes what waits for half a second, and drops the rest.
    found = eventually(lambda: stage.trace(sent["id"], traces), lambda records: len(records) == len(WHOLE))

    assert [record.type for record in found] == WHOLE
    pub, before, after = found
    assert (pub.topic, pub.tags, pub.keys, pub.body_length, pub.success) == (topic, "hot", "k1", 6, True)
    assert (before.group, before.request_id, after.success, after.code) == (group, after.request_id, True, 0)


@on(("4.9.7", "apache"), ("5.3.3", "bundled"))
def test_our_traces_are_read_by_mqadmin(stage: Stage) -> None:
    """A send and a call of the listener."""
    topic, traces, group = stage.topic(queues=1), stage.topic(queues=1), stage.name("group")

    async def send_and_consume() -> str:
        received = asyncio.Event()

        async def listen(messages: list[MessageExt], context: object) -> None:
            received.set()

        producing = ProducerSettings(name_servers=stage.name_server, send_timeout=SEND_TIMEOUT, trace_topic=traces)
        consuming = PushConsumerSettings(
            name_servers=stage.name_server, consume_from_where=ConsumeFromWhere.FIRST_OFFSET, trace_topic=traces
        )
        consumer = PushConsumer(group, consuming)
        consumer.subscribe(topic)
        consumer.listen_concurrently(listen)
        async with Producer("traced-producers", producing) as producer, consumer:
            sent = await producer.send(Message(topic, b"coffee"))
            await received.wait()
        return sent.msg_id

    msg_id = asyncio.run(send_and_consume())
    printed = eventually(
        lambda: stage.mqadmin("queryMsgTraceById", "-i", msg_id, "-t", traces),
        lambda printed: group in printed and "traced-producers" in printed,
    )
    rows = [line.split() for line in printed.splitlines() if line.startswith(("Pub", "Sub"))]
    assert [(row[0], row[1], row[-1]) for row in rows] == [
        ("Pub", "traced-producers", "success"),
        ("Sub", group, "success"),
    ]


@on(("4.9.7", "apache"), ("4.9.7", "bundled"))
def test_query_by_key_returns_as_many_messages_as_asked_for(stage: Stage) -> None:
    """Up to 64, the newest, as in Apache's QueryMsgByKeyIT."""
    topic = stage.topic(queues=1)
    producer = stage.producer()
    producer.send(topic, *map(str, range(70)), keys="key", mode="batch")

    def found() -> list[int]:
        return sorted(int(message.text) for message in producer.query(topic, "key", 70))

    # Apache's broker adds one message after the other to its index, after its answer.
    assert eventually(found, lambda numbers: numbers[-1:] == [69]) == list(range(6, 70))
    assert len(producer.query(topic, "key", 20)) == 20
