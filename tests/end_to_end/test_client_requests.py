"""Requests and replies through the bundled broker."""

import asyncio

import pytest

from rocket_client import IllegalMessageError, Producer, ReplyTimeoutError, SendError
from rocket_remoting import Message, MessageExt
from tests.end_to_end.client_stage import ClientStage, play


async def answered(stage: ClientStage, waiter: Producer, requests: list[bytes]) -> list[bytes]:
    """Answer each request in capital letters, and return the answers."""

    async def listen(messages: list[MessageExt], context: object) -> None:
        for message in messages:
            await waiter.reply(message, message.body.upper() * 2000, properties={"to": message.body.decode()})

    async with stage.producer("guests") as guest, stage.concurrent(listen):
        replies = await asyncio.gather(*(guest.request(Message("orders", body), timeout=10) for body in requests))
    assert [reply.properties["to"].encode() for reply in replies] == requests
    return [reply.body for reply in replies]


def test_each_request_gets_its_own_reply() -> None:
    """Concurrently, with compressed replies."""

    async def scene(stage: ClientStage) -> None:
        async with stage.producer("waiters") as waiter:
            requests = [b"coffee", b"tea", b"cake"]
            assert await answered(stage, waiter, requests) == [body.upper() * 2000 for body in requests]

    play(scene)


def test_request_without_a_reply_times_out() -> None:
    """A later reply is dropped, without an error for the responder."""

    async def scene(stage: ClientStage) -> None:
        late = asyncio.Event()

        async def listen(messages: list[MessageExt], context: object) -> None:
            await late.wait()
            await waiter.reply(messages[0], b"late")

        async with (
            stage.producer("waiters") as waiter,
            stage.producer("guests") as guest,
            stage.concurrent(listen),
        ):
            begun = asyncio.get_running_loop().time()
            with pytest.raises(ReplyTimeoutError, match="on topic 'orders' in 5 s") as caught:
                await guest.request(Message("orders", b"coffee"), timeout=5)
            assert asyncio.get_running_loop().time() - begun == pytest.approx(5, abs=0.1)
            assert caught.value.correlation_id
            late.set()
            await asyncio.sleep(1)

    play(scene)


def test_only_requests_can_be_replied_to() -> None:
    """And only those of connected clients."""

    async def scene(stage: ClientStage) -> None:
        async with stage.producer("waiters") as waiter:
            with pytest.raises(IllegalMessageError, match="no property CLUSTER, CORRELATION_ID, REPLY_TO_CLIENT"):
                await waiter.reply(MessageExt("orders", b"x"), b"y")
            gone = {"CLUSTER": "DefaultCluster", "CORRELATION_ID": "1", "REPLY_TO_CLIENT": "nobody"}
            with pytest.raises(SendError, match="nobody"):
                await waiter.reply(MessageExt("orders", b"x", properties=gone), b"y")

    play(scene)
