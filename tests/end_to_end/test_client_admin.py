"""Administration through the bundled broker, and requests of brokers to clients on its behalf."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from rocket_client import Admin, NoBrokerError, TopicNotFoundError
from rocket_remoting import Message, MessageQueue, RequestCode, ResponseCode, ResponseError
from rocket_remoting.wire.bodies import (
    Body,
    ConsumeMessageDirectlyResult,
    ConsumeMessageResult,
    ConsumerRunningInfo,
    GetConsumerStatusBody,
    SubscriptionGroupConfig,
    decode_body,
)
from rocket_remoting.wire.ext_fields import Header
from rocket_remoting.wire.headers import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
)
from tests.end_to_end.client_stage import ClientStage, RecordingListener, play, until
from tests.end_to_end.raw_client import RawClient

B = TypeVar("B", bound=Body)

QUEUE = MessageQueue("orders", "broker-a", 0)


def administer(scene: Callable[[ClientStage, Admin], Awaitable[None]], **settings: str) -> None:
    async def with_admin(stage: ClientStage) -> None:
        async with stage.admin() as admin:
            await scene(stage, admin)

    play(with_admin, queues=4, **settings)


def test_topics_are_created_and_deleted() -> None:
    """Name servers know at once."""

    async def scene(stage: ClientStage, admin: Admin) -> None:
        await admin.create_topic("bills", 3, read_queues=5)
        route = await admin.topic_route("bills")
        assert (len(route.publish_queues), len(route.subscribe_queues)) == (3, 5)
        assert "bills" in await admin.topics()
        await admin.delete_topic("bills")
        with pytest.raises(TopicNotFoundError, match="'bills'"):
            await admin.topic_route("bills")

    administer(scene)


def test_changed_topic_has_its_new_queues_at_the_name_server_at_once() -> None:
    """Also while earlier changes are being registered."""

    async def scene(stage: ClientStage, admin: Admin) -> None:
        async def change(topic: str) -> None:
            for queues in range(1, 6):
                await admin.create_topic(topic, queues)
                assert len((await admin.topic_route(topic)).publish_queues) == queues

        await asyncio.gather(*(change(f"bills-{number}") for number in range(4)))

    administer(scene)


def test_topic_is_created_while_the_name_server_is_away() -> None:
    """The answer does not wait for it."""

    async def scene(stage: ClientStage, admin: Admin) -> None:
        client = await RawClient.connect(stage.transport, stage.broker.broker_address)
        await stage.broker.name_server.stop()
        await client.create_topic("bills")
        assert stage.broker.broker.topics.get("bills") is not None

    administer(scene)


def test_illegal_topic_is_refused_locally() -> None:
    """The name is checked here."""

    async def scene(stage: ClientStage, admin: Admin) -> None:
        with pytest.raises(ValueError, match="character outside"):
            await admin.create_topic("no good")
        with pytest.raises(ValueError, match="no master of broker-z is known; there are broker-a"):
            await admin.create_topic("good", brokers=["broker-z"])

    administer(scene)


def test_topic_that_does_not_appear_is_a_timeout() -> None:
    """Waiting has an end."""

    async def scene(stage: ClientStage, admin: Admin) -> None:
        with pytest.raises(TimeoutError, match="know 0 of 1 queues of topic 'never'"):
            await admin.await_topic("never", timeout=3)

    administer(scene)


def test_request_to_all_brokers_needs_a_broker() -> None:
    """Otherwise nothing would happen silently."""

    async def scene(stage: ClientStage) -> None:
        async with stage.admin() as admin:
            await stage.broker.broker.stop()
            with pytest.raises(NoBrokerError, match=r"no master broker is registered with name server 127\.0\.0\.1:"):
                await admin.create_topic("fresh", 4)
            with pytest.raises(NoBrokerError):
                await admin.delete_topic("orders")
            with pytest.raises(ValueError, match="no master of broker-a is known; there are none"):
                await admin.create_topic("fresh", 4, brokers=["broker-a"])

    play(scene)


def test_stats_have_queue_ranges_and_group_offsets() -> None:
    """Offsets by queue."""

    async def scene(stage: ClientStage, admin: Admin) -> None:
        heard = RecordingListener()
        await stage.send([b"x"] * 3, queue=0)
        async with stage.concurrent(heard):
            await heard.count(3)
        await stage.send([b"x"] * 2, queue=0)
        span = (await admin.topic_stats("orders"))[QUEUE]
        assert (span.min_offset, span.max_offset) == (0, 5)
        place = (await admin.consume_stats("kitchen", "orders"))[QUEUE]
        assert (place.consumer_offset, place.broker_offset) == (3, 5)
        assert (await admin.min_offset(QUEUE), await admin.max_offset(QUEUE)) == (0, 5)

    administer(scene)


def test_messages_are_found_by_id_and_by_key() -> None:
    """Offset id, unique key, and one of the keys."""

    async def scene(stage: ClientStage, admin: Admin) -> None:
        async with stage.producer() as producer:
            result = await producer.send(Message("orders", b"coffee", keys=["table-4", "guest-2"]))
        viewed = await admin.view_message(result.offset_msg_id)
        by_key = await admin.query_by_key("orders", "guest-2")
        by_unique_key = await admin.query_by_unique_key("orders", result.msg_id)
        assert viewed.body == by_key[0].body == by_unique_key[0].body == b"coffee"
        assert await admin.query_by_key("orders", "guest-3") == []

    administer(scene)


def test_connected_clients_are_listed() -> None:
    """Client id and subscriptions."""

    async def scene(stage: ClientStage, admin: Admin) -> None:
        async with stage.concurrent(RecordingListener(), tags="A") as consumer:
            connection = await admin.consumer_connections("kitchen")
            assert [member.client_id for member in connection.connection_set] == [consumer.client_id]
            assert connection.subscription_table["orders"].sub_string == "A"
        with pytest.raises(ResponseError):
            await admin.consumer_connections("kitchen")

    administer(scene)


def test_created_group_has_its_settings() -> None:
    """Redeliveries are the consumer's business, the group's existence the broker's."""

    async def scene(stage: ClientStage, admin: Admin) -> None:
        await admin.create_group(SubscriptionGroupConfig(group_name="kitchen", retry_max_times=3))
        heard = RecordingListener()
        async with stage.concurrent(heard):
            await stage.send([b"x"])
            await heard.count(1)

    administer(scene, autoCreateSubscriptionGroup="false")


def test_offsets_of_an_online_group_are_reset() -> None:
    """Its members are notified and receive everything since that time again."""

    async def scene(stage: ClientStage, admin: Admin) -> None:
        heard = RecordingListener()
        async with stage.concurrent(heard) as consumer:
            await stage.send([b"old"], queue=0)
            await heard.count(1)
            await asyncio.sleep(60)
            moment = stage.time.clock.now_ms()
            await asyncio.sleep(60)
            await stage.send([b"new"], queue=0)
            await heard.count(2)
            await asyncio.sleep(10)
            offsets = await admin.reset_offsets("kitchen", "orders", moment)
            assert offsets[QUEUE] in {0, 1}
            await until(lambda: len(heard.messages) >= 3)
            assert heard.bodies[-1] == b"new"
            assert QUEUE in consumer.assigned

    administer(scene)


def test_offsets_can_be_reset_forward() -> None:
    """To the end, which skips waiting messages."""

    async def scene(stage: ClientStage, admin: Admin) -> None:
        release = asyncio.Event()
        heard = RecordingListener(lambda message: release.wait())
        await stage.send([b"%d" % number for number in range(100)], queue=0)
        async with stage.concurrent(heard, concurrency=1):
            await heard.count(1)
            await asyncio.sleep(20)
            await admin.reset_offsets("kitchen", "orders", -1)
            await asyncio.sleep(1)
            release.set()
            await asyncio.sleep(60)
            assert len(heard.messages) == 1
            assert await admin.committed_offset(QUEUE, "kitchen") == 100
            await stage.send([b"next"], queue=0)
            await heard.count(2)
        assert heard.bodies[-1] == b"next"

    administer(scene)


def test_consumer_running_info_is_queried() -> None:
    """Settings, subscriptions and process queues, relayed by the broker."""

    async def scene(stage: ClientStage, admin: Admin) -> None:
        release = asyncio.Event()
        heard = RecordingListener(lambda message: release.wait())
        await stage.send([b"x"] * 3, queue=0)
        async with stage.concurrent(heard) as consumer:
            await heard.count(3)
            header = GetConsumerRunningInfoRequestHeader(consumer_group="kitchen", client_id=consumer.client_id)
            info = await ask(stage, RequestCode.GET_CONSUMER_RUNNING_INFO, header, ConsumerRunningInfo)
            release.set()
        assert info.properties["PROP_CONSUMEORDERLY"] == "false"
        assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
        assert [subscription.topic for subscription in info.subscription_set] == ["%RETRY%kitchen", "orders"]
        assert info.mq_table[QUEUE].cached_msg_count == 3

    administer(scene)


def test_consumer_offsets_are_queried() -> None:
    """As the consumer knows them, before they are committed."""

    async def scene(stage: ClientStage, admin: Admin) -> None:
        heard = RecordingListener()
        async with stage.concurrent(heard) as consumer:
            await stage.send([b"x"] * 3, queue=0)
            await heard.count(3)
            header = GetConsumerStatusRequestHeader(topic="orders", group="kitchen")
            status = await ask(stage, RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, header, GetConsumerStatusBody)
            assert status.consumer_table[consumer.client_id][QUEUE] == 3

    administer(scene)


@pytest.mark.parametrize(
    ("said", "result"),
    [
        (None, ConsumeMessageResult.CR_SUCCESS),
        (ValueError("no"), ConsumeMessageResult.CR_THROW_EXCEPTION),
    ],
)
def test_message_can_be_consumed_directly(said: object, result: ConsumeMessageResult) -> None:
    """The answer has the listener's outcome."""

    async def scene(stage: ClientStage, admin: Admin) -> None:
        heard = RecordingListener(lambda message: said)
        (sent,) = await stage.send([b"x"])
        async with stage.concurrent(heard, tags="nothing-like-it") as consumer:
            header = ConsumeMessageDirectlyResultRequestHeader(
                consumer_group="kitchen",
                client_id=consumer.client_id,
                msg_id=sent.offset_msg_id,
                broker_name="broker-a",
            )
            answer = await ask(stage, RequestCode.CONSUME_MESSAGE_DIRECTLY, header, ConsumeMessageDirectlyResult)
        assert answer.consume_result is result
        assert heard.bodies == [b"x"]

    administer(scene)


async def ask(stage: ClientStage, code: RequestCode, header: Header, type_: type[B]) -> B:
    """Send the broker a request as mqadmin does."""
    connection = await stage.transport.connect(stage.broker.broker_address)
    response = await connection.invoke(code, header, timeout=10)
    await connection.close()
    assert response.code == ResponseCode.SUCCESS, response
    return decode_body(response.body, type_)
