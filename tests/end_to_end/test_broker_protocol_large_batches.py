"""Batches of many small messages, and messages with many keys: other clients are served meanwhile."""

import asyncio
from collections.abc import Callable

import pytest

from rocket_broker.embedded import EmbeddedBroker
from rocket_broker.processors.batches import MAX_MESSAGES, PART_MESSAGES
from rocket_broker.writing.message_keys import MAX_KEYS
from rocket_remoting import Message
from rocket_remoting.wire.batch import encode_batch
from rocket_remoting.wire.codes import RequestCode, ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.headers import SendMessageResponseHeader
from tests.end_to_end.raw_client import RawClient, send_header, with_broker


async def send_batch(client: RawClient, messages: list[Message]) -> RemotingCommand:
    """Return the answer to a batch."""
    body = encode_batch(messages)
    return await client.ask(RequestCode.SEND_BATCH_MESSAGE, send_header("orders", batch=True), body)


def ids(answer: RemotingCommand) -> list[str]:
    """Return the ids of the stored messages."""
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return answer.header(SendMessageResponseHeader).msg_id.split(",")


def tagged(number: int) -> Message:
    """Return a message that is stored in one call with others."""
    return Message("orders", b"%d" % number, tags="a", keys=[f"k{number}"])


def odd(number: int) -> Message:
    """Return a message that is stored individually, because its property has no value."""
    return Message("orders", b"%d" % number, properties={"name": ""})


@pytest.mark.parametrize(("make", "count"), [(tagged, 60_000), (odd, 20_000)])
def test_client_sends_while_another_ones_large_batch_is_stored(make: Callable[[int], Message], count: int) -> None:
    """The batch is stored in order, and its answer has each message's offset."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.create_topic("orders")
        other = await RawClient.connect(embedded.broker.transport, embedded.broker_address)
        answered: list[str] = []

        async def batch() -> RemotingCommand:
            answer = await send_batch(client, [make(n) for n in range(count)])
            answered.append("batch")
            return answer

        async def singles() -> None:
            await asyncio.sleep(0)
            while "batch" not in answered:
                await other.send(body=b"single")
                answered.append("single")

        answer, _ = await asyncio.gather(batch(), singles())
        assert answered[0] == "single"
        assert len(set(ids(answer))) == count
        stored: list[bytes] = []
        while len(stored) < count + answered.count("single"):
            stored += [message.body for message in await client.messages(offset=len(stored))]
        assert [body for body in stored if body != b"single"] == [b"%d" % n for n in range(count)]
        await other.connection.close()

    with_broker(scene)


def test_batch_size_is_limited_in_messages() -> None:
    """One more is refused and nothing is stored, as are 190,650 empty ones (4 MiB)."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.create_topic("orders")
        for count in (MAX_MESSAGES + 1, 190_650):
            answer = await send_batch(client, [Message("orders", b"")] * count)
            assert answer.code == ResponseCode.MESSAGE_ILLEGAL
            assert str(MAX_MESSAGES) in (answer.remark or "")
        assert await client.end() == 0
        assert len(ids(await send_batch(client, [Message("orders", b"")] * MAX_MESSAGES))) == MAX_MESSAGES
        assert await client.end() == MAX_MESSAGES

    with_broker(scene)


def test_batch_truncated_at_its_end_is_not_stored() -> None:
    """It is parsed before anything is stored."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.create_topic("orders")
        body = encode_batch([tagged(n) for n in range(2 * PART_MESSAGES)])
        answer = await client.ask(RequestCode.SEND_BATCH_MESSAGE, send_header("orders", batch=True), body[:-1])
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert await client.end() == 0

    with_broker(scene)


@pytest.mark.parametrize("batch", [False, True])
def test_keys_of_a_message_are_limited(batch: bool) -> None:
    """One more is refused with the reason, also within a batch."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.create_topic("orders")
        for number, code in ((MAX_KEYS, ResponseCode.SUCCESS), (MAX_KEYS + 1, ResponseCode.MESSAGE_ILLEGAL)):
            message = Message("orders", b"", keys=[str(n) for n in range(number)])
            if batch:
                answer = await send_batch(client, [*[tagged(n) for n in range(100)], message])
            else:
                answer = await client.try_send(properties=message.properties)
            assert answer.code == code, answer.remark
            if code is not ResponseCode.SUCCESS:
                assert str(MAX_KEYS) in (answer.remark or "")

    with_broker(scene)


def test_many_keys_are_indexed_in_steps() -> None:
    """Two thousand messages of 500 keys are a million entries; the test suite's watchdog sees no long step."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.create_topic("orders")
        keys = [f"{n:x}" for n in range(500)]
        for _ in range(4):
            assert len(ids(await send_batch(client, [Message("orders", b"", keys=keys)] * 500))) == 500

    with_broker(scene)
