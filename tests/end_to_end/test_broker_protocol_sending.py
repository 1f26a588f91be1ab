"""SEND_MESSAGE, SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE over a connection."""

import asyncio

import pytest

from rocket_broker.embedded import EmbeddedBroker
from rocket_remoting import Message, TcpTransport
from rocket_remoting.wire.batch import encode_batch
from rocket_remoting.wire.codes import RequestCode, ResponseCode
from rocket_remoting.wire.command import HeaderEncoding, RemotingCommand
from rocket_remoting.wire.frame_decoder import FrameDecoder
from rocket_remoting.wire.headers import (
    ConsumerSendMsgBackRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from rocket_remoting.wire.message_id import parse_offset_id
from rocket_remoting.wire.sys_flag import TRANSACTION_COMMIT, TRANSACTION_PREPARED
from tests.end_to_end.raw_client import RawClient, send_header, with_broker


def test_answer_has_the_messages_position() -> None:
    """Queue, queue offset, and an offset id with the broker's address; the record can be read."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.send(body=b"first")
        sent = await client.send(body=b"second", properties={"KEYS": "k", "a": "b"}, flag=7)
        assert (sent.queue_id, sent.queue_offset) == (0, 1)
        assert sent.msg_region == "DefaultRegion"
        host, port, offset = parse_offset_id(sent.msg_id)
        assert f"{host}:{port}" == embedded.broker_address
        message = (await client.messages())[1]
        assert (message.body, message.flag, message.commit_log_offset) == (b"second", 7, offset)
        assert message.properties == {"KEYS": "k", "a": "b", "CLUSTER": "DefaultCluster", "MSG_REGION": "DefaultRegion"}
        assert message.born_timestamp == 1_700_000_000_000
        assert message.offset_message_id == sent.msg_id

    with_broker(scene)


def test_message_has_the_region_that_consumers_of_5_3_trace() -> None:
    """The region that the broker has now, and TRACE_ON once consumers must not write traces."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.send()
        await client.send()
        await client.ask_ok(RequestCode.UPDATE_BROKER_CONFIG, body=b"regionId=north\ntraceOn=false\n")
        await client.send()
        properties = [message.properties for message in await client.messages()]
        before = {"CLUSTER": "DefaultCluster", "MSG_REGION": "DefaultRegion"}
        assert properties == [before, before, {**before, "MSG_REGION": "north", "TRACE_ON": "false"}]

    with_broker(scene)


def test_first_message_creates_its_topic() -> None:
    """With the producer's number of queues, up to the broker's limit."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.send("small", default_topic_queue_nums=3)
        await client.send("large", default_topic_queue_nums=99)
        topics = embedded.broker.topics
        configs = [topics.get("small"), topics.get("large")]
        assert [c and c.write_queue_nums for c in configs] == [3, 8]

    with_broker(scene)


def test_unknown_topic_is_refused_without_auto_creation() -> None:
    """Code 17, which makes producers use TBW102's route."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        answer = await client.try_send("unknown")
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST
        assert "topic[unknown] not exist" in (answer.remark or "")

    with_broker(scene, autoCreateTopicEnable="false")


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        ("", ResponseCode.SYSTEM_ERROR),
        ("a b", ResponseCode.SYSTEM_ERROR),
        ("../../etc", ResponseCode.SYSTEM_ERROR),
        ("x" * 128, ResponseCode.SYSTEM_ERROR),
        ("SCHEDULE_TOPIC_XXXX", ResponseCode.NO_PERMISSION),
        ("RMQ_SYS_TRANS_HALF_TOPIC", ResponseCode.NO_PERMISSION),
    ],
)
def test_unsendable_topic_is_refused(topic: str, code: ResponseCode) -> None:
    """Illegal names and system topics."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        answer = await client.try_send(topic)
        assert answer.code == code
        assert answer.remark

    with_broker(scene)


def test_topic_without_write_permission_is_refused() -> None:
    """NO_PERMISSION names the topic."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.create_topic("read-only", perm=4)
        answer = await client.try_send("read-only")
        assert (answer.code, answer.remark) == (
            ResponseCode.NO_PERMISSION,
            "the topic[read-only] sending message is forbidden",
        )

    with_broker(scene)


def test_negative_queue_id_means_any_queue() -> None:
    """Over many messages each queue gets some."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        sent = [await client.send(queue_id=-1) for _ in range(100)]
        assert {answer.queue_id for answer in sent} == {0, 1, 2, 3}

    with_broker(scene)


def test_missing_queue_is_refused() -> None:
    """The remark names it and the topic's configuration."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.send()
        answer = await client.try_send(queue_id=4)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "request queueId[4] is illegal" in (answer.remark or "")

    with_broker(scene)


def test_body_over_the_limit_is_illegal() -> None:
    """One of exactly the limit is stored."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.send(body=bytes(1000))
        answer = await client.try_send(body=bytes(1001))
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert "1000B" in (answer.remark or "")
        assert await client.end() == 1

    with_broker(scene, maxMessageSize="1000")


def test_properties_over_32_kib_are_illegal() -> None:
    """Including those the broker adds."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        answer = await client.try_send(properties={"a": "x" * 32_760})
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        await client.send(properties={"a": "x" * 32_700})

    with_broker(scene)


@pytest.mark.parametrize("text", ["\x01\x02", "a\x01b\x01c\x02", "novalue\x02", "\x02\x02\x02", "a\x01", "\x00"])
def test_malformed_properties_are_dropped(text: str) -> None:
    """As in Apache's broker: the rest of the message is stored."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.ask_ok(RequestCode.SEND_MESSAGE_V2, _with_text(text), b"x")
        (message,) = await client.messages()
        assert message.properties["CLUSTER"] == "DefaultCluster"

    with_broker(scene)


def _with_text(text: str) -> SendMessageRequestHeaderV2:
    header = send_header("orders")
    header.properties = text
    return header


def test_wait_property_is_not_stored() -> None:
    """As in Apache's broker, which saves nine bytes per message."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.send(properties={"WAIT": "true", "a": "b"})
        (message,) = await client.messages()
        assert message.properties == {"a": "b", "CLUSTER": "DefaultCluster", "MSG_REGION": "DefaultRegion"}

    with_broker(scene)


def test_long_header_names_are_understood() -> None:
    """SEND_MESSAGE (10) is SEND_MESSAGE_V2 (310) with long names."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        header = SendMessageRequestHeader(
            producer_group="p", topic="orders", default_topic="TBW102", default_topic_queue_nums=4,
            queue_id=2, sys_flag=0, born_timestamp=1, flag=0, properties="a\x01b\x02",
        )  # fmt: skip
        await client.ask_ok(RequestCode.SEND_MESSAGE, header, b"long")
        (message,) = await client.messages(queue_id=2)
        assert (message.body, message.properties["a"]) == (b"long", "b")

    with_broker(scene)


def test_one_way_message_is_stored_without_an_answer() -> None:
    """Errors are not answered either."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        client.connection.invoke_oneway(RequestCode.SEND_MESSAGE_V2, send_header("orders"), b"one way")
        client.connection.invoke_oneway(RequestCode.SEND_MESSAGE_V2, send_header("no such"), b"bad")
        await asyncio.sleep(1)
        assert [message.body for message in await client.messages()] == [b"one way"]

    with_broker(scene)


def test_batch_becomes_single_messages() -> None:
    """In order, with comma-separated ids; each gets the batch's properties too."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        body = encode_batch([Message("orders", bytes([n]), tags=f"T{n}", keys=f"k{n}") for n in range(3)])
        header = send_header("orders", {"WAIT": "true"}, batch=True)
        answer = await client.ask_ok(RequestCode.SEND_BATCH_MESSAGE, header, body)
        sent = answer.header(SendMessageResponseHeader)
        messages = await client.messages()
        assert sent.msg_id.split(",") == [message.offset_message_id for message in messages]
        assert sent.queue_offset == 0
        assert [(m.body, m.tags, m.keys) for m in messages] == [(bytes([n]), f"T{n}", f"k{n}") for n in range(3)]
        assert all(message.properties["CLUSTER"] == "DefaultCluster" for message in messages)
        assert (await client.pull(subscription="T1")).bodies == [b"\x01"]

    with_broker(scene)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x00",
        b"\x00\x00\x00\x10" + bytes(12),
        b"\x7f\xff\xff\xff" + bytes(40),
        b"\xff\xff\xff\xff" + bytes(40),
        encode_batch([Message("orders", b"x")])[:-1],
    ],
)
def test_malformed_batch_is_illegal_and_stores_nothing(body: bytes) -> None:
    """Wrong or negative lengths, or a truncated body."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        answer = await client.ask(RequestCode.SEND_BATCH_MESSAGE, send_header("orders", batch=True), body)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert await client.end() == 0

    with_broker(scene)


@pytest.mark.parametrize(
    ("topic", "properties", "sys_flag"),
    [
        ("orders", {"DELAY": "1"}, 0),
        ("orders", {"TIMER_DELAY_SEC": "1"}, 0),
        ("orders", {"TIMER_DELIVER_MS": "1"}, 0),
        ("orders", {"TRAN_MSG": "true"}, 0),
        ("orders", {}, TRANSACTION_PREPARED),
        ("orders", {}, TRANSACTION_COMMIT),
        ("%RETRY%g", {}, 0),
    ],
)
def test_batch_with_unsupported_features_is_illegal(topic: str, properties: dict[str, str], sys_flag: int) -> None:
    """Delays, timers, transactions or redeliveries: nothing of it is stored."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        header = send_header(topic, properties, batch=True, sys_flag=sys_flag)
        body = encode_batch([Message("orders", b"a"), Message("orders", b"b")])
        answer = await client.ask(RequestCode.SEND_BATCH_MESSAGE, header, body)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert embedded.broker.store.max_commit_log_offset == 0

    with_broker(scene)


@pytest.mark.parametrize("count", [2, 200])
@pytest.mark.parametrize("name", ["TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"])
def test_timed_message_in_a_batch_is_refused(count: int, name: str) -> None:
    """It would be delivered at once; none of the batch is stored."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        messages = [Message("orders", b"x" * 50, keys=f"key{number}") for number in range(count)]
        soon = embedded.broker.clock.now_ms() + 60_000
        messages[-1].properties[name] = str(soon) if name == "TIMER_DELIVER_MS" else "60"
        header = send_header("orders", batch=True)
        answer = await client.ask(RequestCode.SEND_BATCH_MESSAGE, header, encode_batch(messages))
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert "a batch cannot be timed" in (answer.remark or "")
        assert embedded.broker.store.max_commit_log_offset == 0

    with_broker(scene)


@pytest.mark.parametrize("count", [2, 200])
def test_formerly_timed_message_in_a_batch_is_accepted(count: int) -> None:
    """Forwarded ones, and times in the past, are delivered at once."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        messages = [Message("orders", b"x" * 50, keys=f"key{number}") for number in range(count)]
        messages[0].properties |= {"TIMER_DELAY_SEC": "60", "TIMER_OUT_MS": "1700000000000"}
        messages[-1].properties["TIMER_DELIVER_MS"] = "1"
        header = send_header("orders", batch=True)
        await client.ask_ok(RequestCode.SEND_BATCH_MESSAGE, header, encode_batch(messages))
        assert await client.end() == count

    with_broker(scene)


def test_synchronous_flush_answers_after_the_flush() -> None:
    """Messages with and without waiting are all answered with success."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await asyncio.gather(*(client.send(body=bytes([n])) for n in range(20)))
        await client.send(properties={"WAIT": "false"})
        assert await client.end() == 21

    with_broker(scene, flushDiskType="SYNC_FLUSH")


def test_broker_refuses_sends_before_the_configured_time() -> None:
    """The setting ``startAcceptSendRequestTimeStamp``."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        answer = await client.try_send()
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "broker unable to service" in (answer.remark or "")

    with_broker(scene, startAcceptSendRequestTimeStamp="9999999999999")


def test_answer_has_its_requests_encoding() -> None:
    """RocketMQ's binary header form is the client's choice."""

    async def main() -> None:
        async with EmbeddedBroker() as embedded:
            host, _, port = embedded.broker_address.rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            properties = {"TAGS": "A", "ä": "ö"}
            request = RemotingCommand.request(
                RequestCode.SEND_MESSAGE_V2,
                send_header("orders", properties),
                b"binary",
                encoding=HeaderEncoding.ROCKETMQ,
            )
            request.opaque = 77
            writer.writelines(request.encode())
            decoder = FrameDecoder()
            answers: list[RemotingCommand] = []
            while not answers:
                answers = decoder.feed(await reader.read(65536))
            writer.close()
            (answer,) = answers
            assert (answer.encoding, answer.opaque, answer.code) == (HeaderEncoding.ROCKETMQ, 77, 0)
            assert answer.header(SendMessageResponseHeader).queue_offset == 0
            client = await RawClient.connect(TcpTransport(), embedded.broker_address)
            (message,) = await client.messages()
            assert message.properties == properties | {"CLUSTER": "DefaultCluster", "MSG_REGION": "DefaultRegion"}
            await client.connection.close()

    asyncio.run(main())


@pytest.mark.parametrize(("permission", "sends", "pulls", "gives_back"), [(4, 0, 0, 16), (2, 0, 16, 0)])
def test_broker_permission_refuses_what_apaches_refuses(
    permission: int, sends: int, pulls: int, gives_back: int
) -> None:
    """Messages to unordered topics are still accepted: producers learn from the route."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        assert (await client.try_send()).code == sends
        assert (await client.pull()).code == pulls
        header = ConsumerSendMsgBackRequestHeader(offset=0, group="g", delay_level=0)
        assert (await client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, header)).code == gives_back

    with_broker(scene, brokerPermission=str(permission))
