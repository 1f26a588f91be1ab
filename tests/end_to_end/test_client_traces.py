"""Message traces of our clients, through the bundled broker."""

import asyncio
from typing import Any

from rocket_client import LocalTransactionState, Success, TransactionProducer, TransactionProducerSettings
from rocket_client.tracing.trace_writer import MOST_WAITING
from rocket_remoting import Message
from rocket_remoting.wire.message_trace import MessageType, TraceRecord, TraceType
from rocket_remoting.wire.topics import TRACE_TOPIC
from tests.end_to_end.client_stage import ClientStage, RecordingListener, play

TRACED: Any = {"trace_topic": TRACE_TOPIC}


async def traces(stage: ClientStage, msg_id: str, topic: str = TRACE_TOPIC) -> list[TraceRecord]:
    """Return the trace of a message, once what waits is written."""
    async with stage.admin() as admin:
        return await admin.message_trace(msg_id, topic=topic)


def test_send_and_listener_calls_are_traced() -> None:
    """A failed call and a successful one: five records, in their order, with what Apache's clients write."""

    async def scene(stage: ClientStage) -> None:
        listener = RecordingListener(lambda message: None if message.reconsume_times else ValueError("first"))
        async with stage.producer(**TRACED) as producer, stage.concurrent(listener, **TRACED):
            message = Message("orders", b"coffee", properties={"TAGS": "hot", "KEYS": "k1 k2"})
            sent = await producer.send(message)
            await listener.count(2)
        pub, *calls = await traces(stage, sent.msg_id)
        assert (pub.type, pub.group, pub.topic, pub.tags, pub.keys, pub.body_length) == (
            TraceType.PUB, "shop", "orders", "hot", "k1 k2", 6,
        )  # fmt: skip
        assert (pub.store_host, pub.offset_msg_id) == (stage.broker.broker_address, sent.offset_msg_id)
        assert (pub.region, pub.message_type, pub.success) == ("DefaultRegion", MessageType.NORMAL, True)
        assert [(call.type, call.success, call.code, call.retry_times) for call in calls] == [
            (TraceType.SUB_BEFORE, True, 0, 0),
            (TraceType.SUB_AFTER, False, 2, 0),
            (TraceType.SUB_BEFORE, True, 0, 1),
            (TraceType.SUB_AFTER, True, 0, 0),
        ]
        assert {call.group for call in calls} == {"kitchen"}
        assert calls[0].request_id == calls[1].request_id != calls[2].request_id
        async with stage.admin() as admin:
            assert await admin.query_by_key(TRACE_TOPIC, "k2"), "tools find a trace by the message's own keys, too"

    play(scene, traceTopicEnable="true")


def test_each_message_of_a_batch_is_traced() -> None:
    """Sent together, consumed together in order; in a topic of one's own."""

    async def scene(stage: ClientStage) -> None:
        await stage.topic("own-traces")
        listener = RecordingListener(lambda message: Success())
        own: Any = {"trace_topic": "own-traces"}
        async with (
            stage.producer(**own) as producer,
            stage.orderly(listener, consume_message_batch_max_size=3, **own),
        ):
            sent = await producer.send_batch([Message("orders", body) for body in (b"a", b"b", b"c")])
            await listener.count(3)
        for msg_id in sent.msg_id.split(","):
            found = await traces(stage, msg_id, "own-traces")
            assert [record.type for record in found] == [TraceType.PUB, TraceType.SUB_BEFORE, TraceType.SUB_AFTER]

    play(scene)


def test_end_of_a_transaction_is_traced() -> None:
    """The half message, and its commit."""

    async def scene(stage: ClientStage) -> None:
        async def check(message: object) -> LocalTransactionState:
            return LocalTransactionState.UNKNOWN

        settings = TransactionProducerSettings(name_servers=stage.broker.name_server_address, **TRACED)
        producer = TransactionProducer("bank", settings, check, transport=stage.transport, clock=stage.time.clock)
        async with producer:
            transaction = await producer.begin(Message("orders", b"pay"))
            await transaction.commit()
        half, end = await traces(stage, transaction.send_result.msg_id)
        assert (half.type, half.message_type) == (TraceType.PUB, MessageType.TRANSACTION_HALF)
        assert (end.type, end.transaction_state, end.from_check, end.topic) == (
            TraceType.END_TRANSACTION, "COMMIT_MESSAGE", False, "orders",
        )  # fmt: skip

    play(scene, traceTopicEnable="true")


def test_traces_are_not_written_where_the_broker_forbids_them() -> None:
    """With ``traceOn=false`` neither producer nor consumer writes any."""

    async def scene(stage: ClientStage) -> None:
        listener = RecordingListener()
        async with stage.producer(**TRACED) as producer, stage.concurrent(listener, **TRACED):
            sent = await producer.send(Message("orders", b"coffee"))
            await listener.count(1)
        assert await traces(stage, sent.msg_id) == []

    play(scene, traceTopicEnable="true", traceOn="false")


def test_traces_that_nobody_takes_are_dropped(caplog: Any) -> None:
    """Sends go on, the queue does not grow beyond its limit, one warning has the number."""

    async def scene(stage: ClientStage) -> None:
        async with stage.producer(**TRACED) as producer:
            await asyncio.gather(*(producer.send(Message("orders", b"x")) for _ in range(150)))
            assert producer._traces is not None
            writer = producer._traces._writer
        assert writer.dropped == 150
        for _ in range(MOST_WAITING + 9):
            writer.add(list)
        assert writer.dropped == 159

    play(scene, autoCreateTopicEnable="false")
    (warning,) = [record for record in caplog.records if "message trace" in record.message]
    assert "record(s) dropped" in warning.message
