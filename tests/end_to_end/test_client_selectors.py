"""SQL92 filters and timed delivery with each kind of client on the bundled broker."""

import asyncio
from pathlib import Path

import pytest

from binders.rocket.binder import use_transport
from rocket_client import IllegalMessageError, PullStatus, PushConsumer
from rocket_remoting import Message, MessageQueue, ResponseError
from streamkit import StreamApplication
from streamkit.clock import use_clock
from streamkit.errors import UnsupportedCapability
from tests.end_to_end.client_stage import ClientStage, RecordingListener, play

QUEUE = MessageQueue("orders", "broker-a", 0)
CHEAP_TEA = "price < 10 AND kind = 'tea'"


async def menu(stage: ClientStage) -> None:
    """Store cheap and expensive tea and coffee in one queue."""
    async with stage.producer() as producer:
        for kind, price in (("tea", 3), ("tea", 30), ("coffee", 4), ("tea", 5)):
            properties = {"kind": kind, "price": str(price)}
            await producer.send(Message("orders", f"{kind} {price}".encode(), properties=properties), queue=QUEUE)


def selecting(stage: ClientStage, heard: RecordingListener, expression: str) -> PushConsumer:
    consumer = stage.concurrent(heard)
    consumer.subscribe_sql("orders", expression)
    return consumer


def test_each_consumer_kind_gets_matching_messages() -> None:
    """Push, lite pull, and pull."""

    async def scene(stage: ClientStage) -> None:
        heard = RecordingListener()
        polling = stage.polling("waiters", "")
        polling.subscribe_sql("orders", CHEAP_TEA)
        async with selecting(stage, heard, CHEAP_TEA), polling, stage.pulling("guests") as pulling:
            await menu(stage)
            await heard.count(2)
            polled = [*await polling.poll(), *await polling.poll(5)]
            pulled = await pulling.pull(QUEUE, 0, sql=CHEAP_TEA)
            none = await pulling.pull(QUEUE, 0, sql="kind = 'beer'")
        expected = [b"tea 3", b"tea 5"]
        assert heard.bodies == [message.body for message in polled] == expected
        assert [message.body for message in pulled.messages] == expected
        assert (none.status, none.next_begin_offset) == (PullStatus.NO_MATCHED_MSG, 4)

    play(scene)


def test_invalid_expression_fails_the_start() -> None:
    """With the broker's error, before anything is consumed."""

    async def scene(stage: ClientStage) -> None:
        consumer = selecting(stage, RecordingListener(), "price <")
        with pytest.raises(ResponseError, match="Invalid MessageSelector"):
            await consumer.start()
        with pytest.raises(ValueError, match="is blank"):
            consumer.subscribe_sql("orders", " ")

    play(scene)


def test_broker_without_filtering_fails_the_start() -> None:
    """With `enablePropertyFilter=false`."""

    async def scene(stage: ClientStage) -> None:
        with pytest.raises(ResponseError, match="SQL92"):
            await selecting(stage, RecordingListener(), CHEAP_TEA).start()

    play(scene, enablePropertyFilter="false")


def test_timed_message_can_be_cancelled() -> None:
    """Of two messages for the same time the cancelled one is not delivered."""

    async def scene(stage: ClientStage) -> None:
        heard, moment = RecordingListener(), stage.time.clock.now_ms() + 60_000
        async with stage.concurrent(heard), stage.producer() as producer:
            timed = {body: Message("orders", body) for body in (b"kept", b"cancelled")}
            sent = {}
            for body, message in timed.items():
                message.deliver_at_ms = moment
                sent[body] = await producer.send(message)
            await producer.cancel_delivery(timed[b"cancelled"], sent[b"cancelled"])
            await asyncio.sleep(120)
            assert heard.bodies == [b"kept"]
            assert 59 <= heard.times[0] <= 62
            with pytest.raises(IllegalMessageError, match="deliver_at_ms"):
                await producer.cancel_delivery(Message("orders", b"x"), sent[b"kept"])

    play(scene)


def test_unsupported_sql_of_a_binding_is_refused_with_its_line(tmp_path: Path) -> None:
    """The broker's features are known after connecting."""

    async def scene(stage: ClientStage) -> None:
        file = tmp_path / "application.properties"
        file.write_text(
            "spring.cloud.stream.bindings.input.destination=orders\n"
            "spring.cloud.stream.bindings.input.group=kitchen\n"
            "spring.cloud.stream.rocketmq.bindings.input.consumer.subscription=sql:price < 10\n"
            f"spring.cloud.stream.rocketmq.binder.name-server={stage.broker.name_server_address}\n"
        )
        with use_transport(stage.transport), use_clock(stage.time.clock):
            app = StreamApplication(config_location=file)
            app.stream_listener("input")(lambda payload: None)
            with pytest.raises(UnsupportedCapability, match=r"application.properties:3: .*asks for sql"):
                await app.start(watch_loop=False)

    play(scene, enablePropertyFilter="false")
