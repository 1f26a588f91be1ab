"""Clients in namespaces: they use names without the namespace, the broker uses names with it."""

import asyncio
from pathlib import Path

from rocket_client import (
    ConsumeContext,
    LocalTransactionState,
    MessageModel,
    Reject,
    SendResult,
    TransactionProducer,
    TransactionProducerSettings,
)
from rocket_remoting import Message, MessageExt, MessageQueue
from rocket_remoting.wire.bodies import ConsumeMessageResult, ResetOffsetBody, decode_body
from tests.end_to_end.client_stage import ClientStage, RecordingListener, play, until

QUEUE = MessageQueue("orders", "broker-a", 0)
COMMIT, _, UNKNOWN = LocalTransactionState


async def send(stage: ClientStage, *bodies: bytes, namespace: str = "left") -> list[SendResult]:
    """Send to topic `orders` of the namespace, which is created with one queue first."""
    await stage.topic(f"{namespace}%orders", queues=1)
    async with stage.producer(namespace=namespace) as producer:
        return [await producer.send(Message("orders", body)) for body in bodies]


async def stored(stage: ClientStage, topic: str) -> list[MessageExt]:
    """Return the messages of a topic with one queue, as a client without a namespace sees them."""
    async with stage.pulling("onlooker") as onlooker:
        (queue,) = await onlooker.fetch_message_queues(topic)
        return (await onlooker.pull(queue, 0)).messages


def test_namespaces_separate_topics_and_groups() -> None:
    """Members of two namespaces have equal names and no common messages."""

    async def scene(stage: ClientStage) -> None:
        left, right = RecordingListener(), RecordingListener()
        (sent,) = await send(stage, b"for left")
        await send(stage, b"for right", namespace="right")
        async with (
            stage.concurrent(left, namespace="left") as consumer,
            stage.concurrent(right, namespace="right"),
        ):
            await left.count(1)
            await right.count(1)
            assert QUEUE in consumer.assigned
            assert consumer.group == "left%kitchen"
        assert (left.bodies, right.bodies) == ([b"for left"], [b"for right"])
        assert sent.message_queue == left.messages[0].queue == QUEUE
        (record,) = await stored(stage, "left%orders")
        assert (record.topic, record.properties["INSTANCE_ID"]) == ("left%orders", "left")

    play(scene)


def test_redelivery_stays_in_the_namespace() -> None:
    """Through the retry topic of the namespace's group; the listener sees the original topic."""

    async def scene(stage: ClientStage) -> None:
        heard = RecordingListener(lambda message: None if message.reconsume_times == 2 else ValueError("not yet"))
        await send(stage, b"bad")
        async with stage.concurrent(heard, namespace="left") as consumer:
            await heard.count(3)
            assert MessageQueue("%RETRY%kitchen", "broker-a", 0) in consumer.assigned
        assert [(m.topic, m.reconsume_times) for m in heard.messages] == [("orders", n) for n in range(3)]
        retries = await stored(stage, "%RETRY%left%kitchen")
        assert [m.properties["RETRY_TOPIC"] for m in retries] == ["left%orders"] * 2

    play(scene)


def test_dead_letters_stay_in_the_namespace() -> None:
    """In ``%DLQ%`` and the group, from orderly consumers as well."""

    async def scene(stage: ClientStage) -> None:
        await send(stage, b"bad")
        for listen in (stage.concurrent, stage.orderly):
            contexts: list[ConsumeContext] = []

            async def reject(
                messages: list[MessageExt], context: ConsumeContext, seen: list[ConsumeContext] = contexts
            ) -> Reject:
                seen.append(context)
                return Reject("never")

            group, buried = listen.__name__, RecordingListener()
            async with (
                listen(reject, group, namespace="left"),
                stage.concurrent(buried, "graveyard", topic=f"%DLQ%{group}", namespace="left"),
            ):
                await buried.count(1)
            assert contexts[0].message_queue == QUEUE
            (letter,) = buried.messages
            assert (letter.topic, letter.properties["RETRY_TOPIC"]) == (f"%DLQ%{group}", "left%orders")

    play(scene)


def test_every_kind_of_send_uses_the_namespace() -> None:
    """To a given or selected queue, in a batch, one way; results and selectors show queues without it."""

    async def scene(stage: ClientStage) -> None:
        await stage.topic("left%orders", queues=2)
        async with stage.producer(namespace="left") as producer:
            queues = await producer.publish_queues("orders")
            assert queues == [MessageQueue("orders", "broker-a", number) for number in (0, 1)]
            given = await producer.send(Message("orders", b"a"), queue=queues[1])
            chosen = await producer.send(Message("orders", b"b"), selector=lambda them, message, argument: them[1])
            batch = await producer.send_batch([Message("orders", b"c"), Message("orders", b"d")], queue=queues[1])
            await producer.send_oneway(Message("orders", b"e"), queue=queues[1])
            later = await producer.send_async(Message("orders", b"f"), queue=queues[1])
        assert [sent.message_queue for sent in (given, chosen, batch, later)] == [queues[1]] * 4
        async with stage.pulling(namespace="left") as consumer:
            messages = (await consumer.pull(queues[1], 0)).messages
        assert [m.body for m in messages] == [b"a", b"b", b"c", b"d", b"e", b"f"]
        assert {m.properties["INSTANCE_ID"] for m in messages} == {"left"}

    play(scene)


def test_timed_message_in_a_namespace_can_be_cancelled() -> None:
    """The cancellation has the topic's full name."""

    async def scene(stage: ClientStage) -> None:
        heard = RecordingListener()
        await send(stage)
        async with stage.producer(namespace="left") as producer, stage.concurrent(heard, namespace="left"):
            at = stage.time.clock.now_ms() + 60_000
            messages = {body: Message("orders", body) for body in (b"kept", b"cancelled")}
            for message in messages.values():
                message.deliver_at_ms = at
            sent = {body: await producer.send(message) for body, message in messages.items()}
            await producer.cancel_delivery(messages[b"cancelled"], sent[b"cancelled"])
            await heard.count(1)
            await asyncio.sleep(120)
        assert heard.bodies == [b"kept"]

    play(scene)


def test_transactions_use_the_namespace() -> None:
    """A check reaches a producer of the namespace's group and shows the topic without it."""

    async def scene(stage: ClientStage) -> None:
        checked: list[str] = []

        async def check(message: MessageExt) -> LocalTransactionState:
            checked.append(message.topic)
            return COMMIT

        heard = RecordingListener()
        await send(stage)
        settings = TransactionProducerSettings(name_servers=stage.broker.name_server_address, namespace="left")
        producer = TransactionProducer("shop", settings, check, topics=["orders"], **stage._ends())
        async with producer, stage.concurrent(heard, namespace="left"):
            reported = await producer.begin(Message("orders", b"told"))
            await reported.commit()
            asked = await producer.begin(Message("orders", b"asked"))
            await asked.end(UNKNOWN)
            await heard.count(2)
        assert heard.bodies == [b"told", b"asked"]
        assert checked == ["orders"]
        assert heard.messages[1].properties["PGROUP"] == "left%shop"

    play(scene)


def test_requests_are_answered_across_namespaces() -> None:
    """A reply goes to the cluster's reply topic, whatever the responder's namespace."""

    async def scene(stage: ClientStage) -> None:
        async def answer(messages: list[MessageExt], context: ConsumeContext) -> None:
            await waiter.reply(messages[0], messages[0].body.upper())

        await send(stage)
        async with (
            stage.producer("waiters", namespace="left") as waiter,
            stage.producer("guests", namespace="left") as guest,
            stage.concurrent(answer, namespace="left"),
        ):
            reply = await guest.request(Message("orders", b"coffee"), timeout=10)
        assert reply.body == b"COFFEE"

    play(scene)


def test_lite_pull_consumer_shows_queues_without_the_namespace() -> None:
    """Assigned ones, and those it assigns, seeks, pauses and commits."""

    async def scene(stage: ClientStage) -> None:
        reported: list[object] = []
        await send(stage, b"a", b"b", b"c")
        polling = stage.polling(namespace="left", auto_commit=False)
        polling.subscribe("%RETRY%kitchen")
        polling.on_rebalance(lambda *change: reported.append(change))
        async with polling as consumer:
            (first, *_) = await consumer.poll()
            assert first.queue == QUEUE
            assert reported[-1] == ("orders", frozenset({QUEUE}), frozenset({QUEUE}))
            await consumer.send_back(first, 1)
            await consumer.commit({first.queue: 2})
            assert await consumer.committed(QUEUE) == 2
            (again,) = await consumer.poll(timeout=60)
            assert (again.topic, consumer.origin_topic(again)) == ("%RETRY%kitchen", "orders")
            assert again.queue in consumer.assigned

        assigning = stage.polling("readers", topic="", namespace="left")
        assigning.assign([QUEUE])
        async with assigning as reader:
            assert await reader.fetch_message_queues("orders") == [QUEUE]
            await reader.seek(QUEUE, 2)
            assert [m.body for m in await reader.poll()] == [b"c"]
            reader.pause([QUEUE])
            assert reader.paused == {QUEUE}
            await reader.seek_to_begin(QUEUE)
            assert await reader.poll(timeout=5) == []
            reader.resume([QUEUE])
            assert len(await reader.poll()) == 3
            assert await reader.max_offset(QUEUE) == 3

    play(scene)


def test_pull_consumer_shows_queues_without_the_namespace() -> None:
    """Its offsets are those of the namespace's group."""

    async def scene(stage: ClientStage) -> None:
        begun = stage.time.clock.now_ms()
        await send(stage, b"a", b"b")
        async with stage.pulling(namespace="left") as consumer, stage.admin() as admin:
            (queue,) = await consumer.fetch_message_queues("orders")
            pulled = await consumer.pull(queue, await consumer.min_offset(queue))
            assert [(m.queue, m.body) for m in pulled.messages] == [(QUEUE, b"a"), (QUEUE, b"b")]
            assert await consumer.offset_for_timestamp(queue, begun) == 0
            held = await consumer.pull_block_if_not_found(queue, 2)
            assert held.messages == []
            await consumer.commit({queue: pulled.next_begin_offset})
            assert await consumer.committed(queue) == 2
            known = MessageQueue("left%orders", "broker-a", 0)
            assert await admin.committed_offset(known, "left%kitchen") == 2

    play(scene)


def test_broadcast_offsets_are_separate_per_namespace(tmp_path: Path) -> None:
    """Members with one client id have separate files, which Apache's client can read."""

    async def scene(stage: ClientStage) -> None:
        for namespace in ("left", "right"):
            await send(stage, b"a", b"b", namespace=namespace)
            for expected in (2, 0):
                heard = RecordingListener()
                async with stage.concurrent(
                    heard,
                    namespace=namespace,
                    message_model=MessageModel.BROADCASTING,
                    local_offset_store_dir=tmp_path,
                ):
                    await heard.count(expected)
                    await asyncio.sleep(10)
                assert len(heard.messages) == expected

    play(scene)
    for namespace in ("left", "right"):
        (file,) = tmp_path.glob(f"*/{namespace}%kitchen/offsets.json")
        offsets = decode_body(file.read_bytes(), ResetOffsetBody).offset_table
        assert offsets == {MessageQueue(f"{namespace}%orders", "broker-a", 0): 2}


def test_broker_requests_reach_members_of_a_namespace() -> None:
    """Offset resets, queries, and direct consumption."""

    async def scene(stage: ClientStage) -> None:
        heard = RecordingListener()
        await send(stage, b"a", b"b")
        async with stage.concurrent(heard, namespace="left") as consumer, stage.admin() as admin:
            await heard.count(2)
            await until(lambda: bool(consumer.known_offsets("left%orders")))
            await consumer.persist_offsets()
            connections = await admin.consumer_connections("left%kitchen")
            assert set(connections.subscription_table) == {"left%orders", "%RETRY%left%kitchen"}
            await admin.reset_offsets("left%kitchen", "left%orders", 0)
            await heard.count(4)
            given = MessageExt("%RETRY%left%kitchen", b"x", properties={"RETRY_TOPIC": "left%orders"})
            result = await consumer.consume_directly(given)
            assert result.consume_result is ConsumeMessageResult.CR_SUCCESS
        assert {message.topic for message in heard.messages} == {"orders"}
        assert len(heard.messages) == 5

    play(scene)
