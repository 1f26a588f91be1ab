"""Messages delivered at a given time, by the properties of 5.x."""

import asyncio
from pathlib import Path

import pytest

from rocket_broker.embedded import EmbeddedBroker
from rocket_broker.schedule.timer_service import cancel_key
from rocket_remoting import MemoryTransport, TcpTransport
from rocket_remoting.wire.codes import RequestCode, ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.headers import RecallMessageRequestHeader, RecallMessageResponseHeader
from rocket_remoting.wire.properties import encode_properties
from rocket_remoting.wire.recall_handle import RecallHandle
from streamkit.testing.virtual_time import VirtualTime
from tests.end_to_end.raw_client import HELD, RawClient, with_broker

REMEMBERS_CLIENTS = {"serverChannelMaxIdleTimeSeconds": "0"}


def now_ms(embedded: EmbeddedBroker) -> int:
    """Return the broker's wall-clock time."""
    return embedded.broker.clock.now_ms()


async def second_begins(embedded: EmbeddedBroker) -> int:
    """Wait for the beginning of a second and return it."""
    await asyncio.sleep((1000 - now_ms(embedded) % 1000) / 1000)
    return now_ms(embedded)


@pytest.mark.parametrize(("name", "value"), [("TIMER_DELAY_SEC", 17 * 60 + 22), ("TIMER_DELAY_MS", 1_042_000)])
def test_message_is_delivered_after_any_delay(name: str, value: int) -> None:
    """17 min 22 s: not early, at most a second late, with its content and the properties that Apache's brokers add."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        sent = await second_begins(embedded) + 300
        await asyncio.sleep(0.3)
        answer = await client.send(properties={name: str(value), "TAGS": "A", "UNIQ_KEY": "id"})
        assert (answer.queue_id, answer.queue_offset) == (0, 0)
        await asyncio.sleep(1041.9)
        assert await client.messages() == []
        await asyncio.sleep(1.1)
        (message,) = (await client.pull(subscription="A")).messages
        due = sent + 1_042_000
        timed, delivered = int(message.properties["TIMER_ENQUEUE_MS"]), message.store_timestamp
        assert due <= delivered <= due + 1000
        assert timed // 1000 == sent // 1000
        assert message.properties == {
            name: str(value),
            "TAGS": "A",
            "UNIQ_KEY": "id",
            "CLUSTER": "DefaultCluster",
            "MSG_REGION": "DefaultRegion",
            "TIMER_OUT_MS": str(due // 1000 * 1000),
            "REAL_TOPIC": "orders",
            "REAL_QID": "0",
            "TIMER_ENQUEUE_MS": str(timed),
            "TIMER_DEQUEUE_MS": str(delivered),
        }

    with_broker(scene)


def test_message_is_delivered_at_its_time() -> None:
    """TIMER_DELIVER_MS on a full second is met exactly; queue and order are kept."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.create_topic("orders", queues=3)
        at = await second_begins(embedded) + 60_000
        for number in range(20):
            properties = {"TIMER_DELIVER_MS": str(at)}
            await client.send(body=f"{number}".encode(), queue_id=2, properties=properties)
        await asyncio.sleep(59.99)
        assert await client.messages(queue_id=2) == []
        await asyncio.sleep(0.02)
        messages = await client.messages(queue_id=2)
        assert [int(message.body) for message in messages] == list(range(20))
        assert messages[0].store_timestamp == at

    with_broker(scene)


def test_precision_can_be_a_tenth_of_a_second() -> None:
    """timerPrecisionMs."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        now = await second_begins(embedded)
        await client.send(properties={"TIMER_DELAY_MS": "1250"})
        await asyncio.sleep(2)
        (message,) = await client.messages()
        assert message.store_timestamp == now + 1300

    with_broker(scene, timerPrecisionMs="100")


@pytest.mark.parametrize("past", ["-5", "0"])
def test_past_time_is_no_delay(past: str) -> None:
    """The message is delivered at once."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.send(properties={"TIMER_DELAY_SEC": past})
        await client.send(properties={"TIMER_DELIVER_MS": str(now_ms(embedded) + int(past) * 1000)})
        assert len(await client.messages()) == 2

    with_broker(scene)


def test_delay_level_takes_precedence() -> None:
    """As in Apache's brokers, over the other timer properties."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.send(properties={"DELAY": "2", "TIMER_DELAY_SEC": "100"})
        await asyncio.sleep(5.1)
        (message,) = await client.messages()
        assert "TIMER_DELAY_SEC" not in message.properties

    with_broker(scene)


def test_level_below_zero_is_ignored() -> None:
    """The other timer property applies."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.send(properties={"DELAY": "-1", "TIMER_DELAY_SEC": "5"})
        assert await client.end() == 0
        await asyncio.sleep(7)
        assert len(await client.messages()) == 1

    with_broker(scene)


def test_delivered_message_is_not_timed_again() -> None:
    """Forwarded with all its properties or sent back, it is not delayed again."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.send(properties={"TIMER_DELAY_SEC": "5"})
        await asyncio.sleep(7)
        (message,) = await client.messages()
        await client.send(properties=message.properties)
        assert await client.end() == 2
        await client.send_back(message)
        await asyncio.sleep(10.1)
        assert len(await client.messages("%RETRY%g")) == 1

    with_broker(scene)


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"TIMER_DELAY_SEC": str(40 * 24 * 3600 + 1)}, "bigger than the max delay 3456000000ms"),
        ({"TIMER_DELAY_SEC": "9" * 30}, "bigger than the max delay"),
        ({"TIMER_DELAY_SEC": "9" * 4300}, "bigger than the max delay"),
        ({"TIMER_DELAY_SEC": "soon"}, "TIMER_DELAY_SEC is not a number: 'soon'"),
        ({"TIMER_DELIVER_MS": ""}, None),
        ({"TIMER_DELAY_MS": "1e3"}, "TIMER_DELAY_MS is not a number"),
        ({"TIMER_DELAY_MS": "1_0"}, "TIMER_DELAY_MS is not a number"),
        ({"TIMER_DELAY_SEC": " 1"}, "TIMER_DELAY_SEC is not a number"),
        ({"TIMER_DELAY_MS": "-1", "TIMER_DEL_UNIQKEY": "orders+id"}, "it is to cancel what was due"),
    ],
)
def test_invalid_time_is_refused(properties: dict[str, str], words: str | None) -> None:
    """With Apache's code and the value in the remark; an empty property is ignored."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        answer = await client.try_send(properties=properties)
        if words is None:
            assert answer.code == ResponseCode.SUCCESS
            return
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert words in (answer.remark or "")
        assert await client.end() == 0

    with_broker(scene)


def test_timed_message_is_refused_without_the_timer_wheel() -> None:
    """timerWheelEnable=false."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        answer = await client.try_send(properties={"TIMER_DELAY_SEC": "5"})
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "timerWheelEnable is false" in (answer.remark or "")

    with_broker(scene, timerWheelEnable="false")


def test_client_cannot_send_to_the_timer_topic() -> None:
    """A message without a time would block it for ever."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.send(properties={"TIMER_DELAY_SEC": "5"})
        answer = await client.try_send("rmq_sys_wheel_timer")
        assert answer.code == ResponseCode.NO_PERMISSION

    with_broker(scene)


def test_timers_of_one_slot_are_limited() -> None:
    """timerCongestNumEachSlot; another second is free."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        at = await second_begins(embedded) + 60_000
        for _ in range(3):
            await client.send(properties={"TIMER_DELIVER_MS": str(at)})
            await asyncio.sleep(0)
        answer = await client.try_send(properties={"TIMER_DELIVER_MS": str(at)})
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "flow control" in (answer.remark or "")
        await client.send(properties={"TIMER_DELIVER_MS": str(at + 1000)})

    with_broker(scene, timerCongestNumEachSlot="3")


@pytest.mark.parametrize("key", [cancel_key("orders", "id-1"), "id-1"])
def test_timed_message_can_be_cancelled(key: str) -> None:
    """By a message for the same time that names topic and key; before 5.3 the key alone."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        at = str(now_ms(embedded) + 60_000)
        for number in range(3):
            await client.send(properties={"TIMER_DELIVER_MS": at, "UNIQ_KEY": f"id-{number}"})
        cancel = {"TIMER_DELIVER_MS": at, "TIMER_DEL_UNIQKEY": key, "UNIQ_KEY": "id-1"}
        await client.send(properties=cancel)
        await asyncio.sleep(62)
        assert [message.unique_key for message in await client.messages()] == ["id-0", "id-2"]

    with_broker(scene)


def test_cancellation_with_another_time_or_topic_has_no_effect() -> None:
    """And a cancelling message is not delivered."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        at = await second_begins(embedded) + 60_000
        await client.send(properties={"TIMER_DELIVER_MS": str(at), "UNIQ_KEY": "id"})
        for when, topic in ((at + 1000, "orders"), (at, "others")):
            cancel = {"TIMER_DELIVER_MS": str(when), "TIMER_DEL_UNIQKEY": cancel_key(topic, "id")}
            await client.send(properties=cancel)
        await asyncio.sleep(62)
        assert len(await client.messages()) == 1

    with_broker(scene)


def test_long_delay_is_rolled() -> None:
    """It is stored again at the end of each window, so that its record does not expire; it can still be cancelled."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        at = await second_begins(embedded) + 150_000
        await client.send(properties={"TIMER_DELIVER_MS": str(at), "UNIQ_KEY": "stays"})
        await client.send(properties={"TIMER_DELIVER_MS": str(at), "UNIQ_KEY": "goes"})
        await asyncio.sleep(25)
        cancel = {"TIMER_DELIVER_MS": str(at), "TIMER_DEL_UNIQKEY": cancel_key("orders", "goes")}
        await client.send(properties=cancel)
        await asyncio.sleep(124)
        assert await client.messages() == []
        await asyncio.sleep(2)
        (message,) = await client.messages()
        assert message.unique_key == "stays"
        assert message.properties["TIMER_ROLL_TIMES"] == "2"
        assert at <= message.store_timestamp <= at + 1000

    with_broker(scene, timerRollWindowSlot="60")


def test_timers_survive_a_restart(tmp_path: Path) -> None:
    """Due and overdue ones are delivered, none twice."""

    async def main(time: VirtualTime) -> None:
        transport = MemoryTransport()

        def broker() -> EmbeddedBroker:
            return EmbeddedBroker(tmp_path, transport=transport, clock=time.clock, settings=REMEMBERS_CLIENTS)

        async with broker() as embedded:
            client = await RawClient.connect(transport, embedded.broker_address)
            for seconds in (5, 30, 90):
                await client.send(body=f"{seconds}".encode(), properties={"TIMER_DELAY_SEC": f"{seconds}"})
            await asyncio.sleep(10)
            assert [message.body for message in await client.messages()] == [b"5"]
            await client.connection.close()
        await asyncio.sleep(50)
        async with broker() as embedded:
            client = await RawClient.connect(transport, embedded.broker_address)
            await asyncio.sleep(1)
            assert [message.body for message in await client.messages()] == [b"5", b"30"]
            await asyncio.sleep(30)
            assert [message.body for message in await client.messages()] == [b"5", b"30", b"90"]
            await client.connection.close()

    with VirtualTime() as time:
        time.run(main(time))


@pytest.mark.parametrize("kind", ["timers of different seconds", "messages of a delay level"])
def test_overdue_timers_are_delivered_in_steps(tmp_path: Path, kind: str) -> None:
    """Thousands of messages, with clients served in between."""
    count, most_in_a_turn = 2_000, 300

    async def main(time: VirtualTime) -> None:
        transport = MemoryTransport()

        def broker() -> EmbeddedBroker:
            return EmbeddedBroker(tmp_path, transport=transport, clock=time.clock, settings=REMEMBERS_CLIENTS)

        async with broker() as embedded:
            client = await RawClient.connect(transport, embedded.broker_address)
            for number in range(count):
                timer = {"TIMER_DELAY_SEC": f"{100 + number}"}
                await client.send(properties=timer if kind.startswith("timers") else {"DELAY": "5"})
            await client.connection.close()
        await asyncio.sleep(3_600)
        async with broker() as embedded:
            store, jumps = embedded.broker.store, list[int]()
            delivered = store.max_offset("orders", 0)  # in the last turns of the start
            assert delivered < count // 2
            while delivered < count:
                await asyncio.sleep(0)
                before, delivered = delivered, store.max_offset("orders", 0)
                jumps.append(delivered - before)
            assert max(jumps) <= most_in_a_turn

    with VirtualTime() as time:
        time.run(main(time))


def test_timers_over_sockets(tmp_path: Path) -> None:
    """On the real clock: not too early."""

    async def main() -> None:
        async with EmbeddedBroker(tmp_path, settings={"timerPrecisionMs": "100"}) as embedded:
            client = await RawClient.connect(TcpTransport(), embedded.broker_address)
            await client.create_topic("orders")
            sent = now_ms(embedded)
            held = asyncio.ensure_future(client.pull(sys_flag=HELD))
            await client.send(properties={"TIMER_DELAY_MS": "300"})
            (message,) = (await held).messages
            assert message.store_timestamp >= sent + 300
            await client.connection.close()

    asyncio.run(main())


async def recall(client: RawClient, handle: str, topic: str = "orders") -> RemotingCommand:
    """Recall a message and return the answer, whatever its code."""
    header = RecallMessageRequestHeader(topic=topic, producer_group="p", recall_handle=handle)
    return await client.ask(RequestCode.RECALL_MESSAGE, header)


def test_message_is_recalled_by_its_handle() -> None:
    """The answer to a timed message has one, as in 5.3."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        sent = [
            await client.send(properties={"TIMER_DELAY_SEC": "60", "UNIQ_KEY": f"id-{number}"}) for number in range(3)
        ]
        answer = await recall(client, sent[1].recall_handle or "")
        assert answer.code == ResponseCode.SUCCESS
        assert answer.header(RecallMessageResponseHeader).msg_id == "id-1"
        await asyncio.sleep(62)
        assert [message.unique_key for message in await client.messages()] == ["id-0", "id-2"]

    with_broker(scene)


def test_invalid_recall_handle_is_refused() -> None:
    """With Apache's codes and the reason."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        sent = await client.send(properties={"TIMER_DELAY_SEC": "60", "UNIQ_KEY": "id"})
        handle = RecallHandle.decode(sent.recall_handle or "")
        assert handle is not None
        await client.create_topic("others")
        for wrong, topic, words in (
            (handle, "others", "topic not match"),
            (handle._replace(broker_name="elsewhere"), "orders", "waits at elsewhere"),
            (handle._replace(deliver_ms=1), "orders", "timestamp invalid"),
            (handle._replace(deliver_ms=2**60), "orders", "timestamp invalid"),
        ):
            answer = await recall(client, wrong.encode(), topic)
            assert answer.code == ResponseCode.ILLEGAL_OPERATION
            assert words in (answer.remark or "")
        for text in ("", "?", "djEgYSBiIGM=", "x" * 1000):
            assert (await recall(client, text)).code == ResponseCode.ILLEGAL_OPERATION
        assert (await recall(client, handle.encode(), "unknown")).code == ResponseCode.TOPIC_NOT_EXIST
        await asyncio.sleep(62)
        assert len(await client.messages()) == 1

    with_broker(scene)


def test_only_timed_messages_have_handles() -> None:
    """None can be recalled where recalling is disabled."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        plain = await client.send(properties={"UNIQ_KEY": "id"})
        assert (plain.recall_handle, plain.transaction_id) == (None, None)
        timed = await client.send(properties={"TIMER_DELAY_SEC": "60", "UNIQ_KEY": "id"})
        assert timed.transaction_id is None
        answer = await recall(client, timed.recall_handle or "")
        assert answer.code == ResponseCode.NO_PERMISSION

    with_broker(scene, recallMessageEnable="false")


def test_message_without_space_for_timer_properties_is_delivered() -> None:
    """Its own properties have the maximum length; the timer's are omitted."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        asked = {"TIMER_DELAY_SEC": "10", "UNIQ_KEY": "id"}
        await client.send(properties=asked | {"fill": "-"})
        await asyncio.sleep(12)
        (probe,) = await client.messages()
        for name in ("TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS"):
            del probe.properties[name]
        room = 32_767 - len(encode_properties(probe.properties))
        await client.send(properties=asked | {"fill": "x" * room})
        await asyncio.sleep(12)
        (_, message) = await client.messages()
        assert message.properties["fill"] == "x" * room
        assert "TIMER_ENQUEUE_MS" not in message.properties

    with_broker(scene)
