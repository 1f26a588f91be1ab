"""Hostile and faulty clients disturb no others."""

import asyncio
import json
import logging
import random
import struct

import pytest

from rocket_broker.embedded import EmbeddedBroker
from rocket_remoting import RequestCode, TcpTransport
from rocket_remoting.session.connection import Connection
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from tests.end_to_end.raw_client import RawClient, pull_header, send_header, with_broker

CODES = [int(code) for code in RequestCode]


def frame(header: object, body: bytes = b"") -> bytes:
    """Return a frame with any JSON as its header."""
    text = json.dumps(header).encode()
    return struct.pack(">ii", 4 + len(text) + len(body), len(text)) + text + body


@pytest.mark.parametrize("code", [0, 1, -1, 9999, 39, 400, 200050, 2**31 - 1])
def test_unknown_request_code_is_answered_as_not_supported(code: int) -> None:
    """The connection stays open."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        answer = await client.ask(code)
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        await client.send()

    with_broker(scene)


@pytest.mark.parametrize("code", CODES)
def test_empty_request_is_answered(code: int) -> None:
    """With success where it needs nothing, otherwise with an error."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.ask(code)
        await client.send()

    with_broker(scene)


GARBAGE = [
    b"\x00",
    b"{}",
    b"[]",
    b"null",
    b'{"mqSet":5}',
    b"{" * 5000,
    b"\xff\xfe\xfd",
    b'{"a":' * 2000,
    b"1" * 5000,
]


@pytest.mark.parametrize("code", [34, 41, 42, 46, 200, 25, 320, 36, 309])
def test_garbage_body_is_answered_with_an_error(code: int) -> None:
    """Whatever it is."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        for body in GARBAGE:
            await client.ask(code, None, body)
        await client.send()

    with_broker(scene)


NUMBERS = [
    "-1",
    "0",
    "1",
    "4",
    "2147483647",
    "-2147483648",
    "9223372036854775807",
    "-9223372036854775808",
    "x",
    "",
]
TEXTS = [
    "",
    "x",
    "no good",
    "../..",
    "%RETRY%",
    "%RETRY%g",
    "%DLQ%",
    "TBW102",
    "SCHEDULE_TOPIC_XXXX",
    "\x00",
    "||",
]
HONEST_NUMBERS = {
    "queueId": "0", "queueOffset": "0", "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "subVersion": "0",
    "suspendTimeoutMillis": "10", "offset": "0", "delayLevel": "0", "timestamp": "0", "maxNum": "10", "perm": "6",
    "beginTimestamp": "0", "endTimestamp": "9999999999999", "readQueueNums": "2", "writeQueueNums": "2", "index": "0",
    "count": "10", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0", "j": "0", "l": "16", "bornTimestamp": "1",
    "defaultTopicQueueNums": "4", "flag": "0", "topicSysFlag": "0", "reconsumeTimes": "0", "maxReconsumeTimes": "16",
}  # fmt: skip
HONEST_TEXTS = {
    "topic": "orders", "subscription": "*", "expressionType": "TAG", "consumerGroup": "g", "group": "g", "key": "k",
    "topicFilterType": "SINGLE_TAG", "defaultTopic": "TBW102", "groupName": "g", "producerGroup": "p", "clientID": "c",
    "clientId": "c", "msgId": "7F00000100002A9F0000000000000000", "srcGroup": "g", "destGroup": "h", "a": "p",
    "b": "orders", "c": "TBW102", "i": "a\x01b\x02", "properties": "a\x01b\x02", "statsName": "x", "statsKey": "y",
    "attributes": "+message.type=NORMAL",
}  # fmt: skip
HONEST_FLAGS = {"isForce": "true", "isOrder": "false", "k": "false", "m": "false", "batch": "false"}


@pytest.mark.parametrize("seed", range(10))
def test_random_invalid_fields_cause_no_unexpected_errors(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    """Of requests that are valid except for a field or two, each gets an expected answer."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        chance = random.Random(seed)
        await client.send(properties={"KEYS": "k"})
        await client.heartbeat("c", consumers={"g": {"orders": "*"}}, producers=("p",))
        await client.commit(1)
        honest = HONEST_NUMBERS | HONEST_TEXTS | HONEST_FLAGS
        for _ in range(200):
            fields = dict(honest)
            for name in chance.sample(sorted(honest), chance.randint(0, 2)):
                fields[name] = chance.choice(NUMBERS if name in HONEST_NUMBERS else TEXTS)
            body = chance.choice([b"", b"x", chance.choice(GARBAGE)])
            await client.ask(chance.choice(CODES), None, body, ext_fields=fields)
        neighbour = await RawClient.connect(embedded.broker.transport, embedded.broker_address)
        await neighbour.send("honest", queue_id=-1)
        await neighbour.connection.close()

    with caplog.at_level(logging.ERROR):
        with_broker(scene)
    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_every_field_of_a_pull_may_be_extreme() -> None:
    """Largest and smallest numbers are answered with a code."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.send()
        for name in ("queue_offset", "commit_offset", "suspend_timeout_millis", "sub_version"):
            for value in (2**63 - 1, -(2**63)):
                header = pull_header("orders", 0)
                setattr(header, name, value)
                await client.ask(RequestCode.PULL_MESSAGE, header)
        for name in ("max_msg_nums", "queue_id", "max_msg_bytes"):
            for value in (2**31 - 1, -(2**31)):
                header = pull_header("orders", 0)
                setattr(header, name, value)
                await client.ask(RequestCode.PULL_MESSAGE, header)

    with_broker(scene)


def test_every_number_of_a_message_may_be_extreme() -> None:
    """Stored or refused, never partly."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        stored = 0
        for name, values in {
            "born_timestamp": (2**63 - 1, -(2**63)),
            "flag": (2**31 - 1, -(2**31)),
            "reconsume_times": (2**31 - 1, -(2**31)),
            "max_reconsume_times": (2**31 - 1, -(2**31)),
            "default_topic_queue_nums": (2**31 - 1, -(2**31)),
            "queue_id": (2**31 - 1,),
        }.items():
            for value in values:
                answer = await client.try_send(**{name: value})
                stored += answer.code == ResponseCode.SUCCESS
        assert len(await client.messages()) == stored

    with_broker(scene)


def test_topic_created_with_a_negative_queue_count_takes_no_messages() -> None:
    """A negative number of queues is none."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        answer = await client.try_send("empty", default_topic_queue_nums=-5, queue_id=-1)
        assert answer.code == ResponseCode.SYSTEM_ERROR

    with_broker(scene)


@pytest.mark.parametrize(
    "data",
    [
        b"\x00" * 64,
        b"\xff" * 64,
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(40),
        struct.pack(">i", -5) + bytes(20),
        struct.pack(">ii", 2**31 - 1, 10) + bytes(20),
        frame({"code": 310})[:-1] + b"",
        frame([1, 2, 3]),
        frame({"code": "x"}),
        frame({"code": 310, "extFields": 5, "opaque": 1}),
    ],
)
def test_garbage_on_a_socket_closes_only_that_connection(data: bytes) -> None:
    """No frame, an oversized or negative one, another protocol, an invalid header."""

    async def main() -> None:
        async with EmbeddedBroker() as embedded:
            host, _, port = embedded.broker_address.rpartition(":")
            honest = await RawClient.connect(TcpTransport(), embedded.broker_address)
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(data)
            writer.write_eof()
            async with asyncio.timeout(60):
                await reader.read()
            writer.close()
            await honest.send(body=b"still here")
            assert (await honest.pull()).bodies == [b"still here"]
            await honest.connection.close()

    asyncio.run(main())


def stalled_at(embedded: EmbeddedBroker) -> list[Connection]:
    """Return the broker's connections whose reading is paused."""
    assert embedded.broker._server is not None
    return [connection for connection in embedded.broker._server.connections if connection._stalled]


def test_client_that_reads_nothing_does_not_fill_the_memory() -> None:
    """Its connection is no longer read, and the others are served."""

    async def main() -> None:
        async with EmbeddedBroker() as embedded:
            honest = await RawClient.connect(TcpTransport(), embedded.broker_address)
            for _ in range(64):
                await honest.send(body=bytes(64 * 1024))
            host, _, port = embedded.broker_address.rpartition(":")
            _, writer = await asyncio.open_connection(host, int(port), limit=1)
            pull = RemotingCommand.request(RequestCode.PULL_MESSAGE, pull_header("orders", 0, max_msg_nums=4096))
            greedy = b"".join(bytes(piece) for piece in pull.encode())
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(greedy * 2000)
            async with asyncio.timeout(60):
                while not (stalls := stalled_at(embedded)):  # noqa: ASYNC110 - nobody tells of it
                    await asyncio.sleep(0.01)
            (stalled,) = stalls
            assert stalled._transport is not None
            assert stalled._transport.get_write_buffer_size() < 100 * 1024 * 1024
            assert (await honest.pull(offset=63)).code == ResponseCode.SUCCESS
            writer.transport.abort()
            await honest.connection.close()

    asyncio.run(main())


def test_many_requests_in_one_write_are_answered_individually() -> None:
    """In order, each with its own number."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        answers = await asyncio.gather(
            *(client.ask(RequestCode.SEND_MESSAGE_V2, send_header("orders"), b"%d" % n) for n in range(500))
        )
        assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}
        messages = await client.messages()
        assert [message.body for message in messages] == [b"%d" % n for n in range(500)]

    with_broker(scene)
