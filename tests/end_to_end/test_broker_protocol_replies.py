"""Request-reply: a reply goes to the requester over its connection and into the reply topic."""

import asyncio
from typing import Any

import pytest

from rocket_broker.embedded import EmbeddedBroker
from rocket_remoting.wire.codes import RequestCode as Code
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.headers import (
    ReplyMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageResponseHeader,
)
from rocket_remoting.wire.properties import decode_properties, encode_properties_text
from tests.end_to_end.raw_client import RawClient, send_header, with_broker

TOPIC = "DefaultCluster_REPLY_TOPIC"
TO_ASKER = {"REPLY_TO_CLIENT": "asker@1", "CORRELATION_ID": "7"}


async def asking(embedded: EmbeddedBroker, answer: Any) -> RawClient:
    """Return the requesting client; ``answer`` is its answer to a pushed reply."""
    transport = embedded.broker.transport
    pushed: list[RemotingCommand] = []

    def handle(_: Any, request: RemotingCommand) -> RemotingCommand | None:
        pushed.append(request)
        return answer(request)  # type: ignore[no-any-return]

    client = RawClient(await transport.connect(embedded.broker_address, handler=handle), pushed)
    await client.heartbeat("asker@1", producers=("asking",))
    return client


async def reply(client: RawClient, properties: dict[str, str], body: bytes = b"42") -> RemotingCommand:
    """Send a reply and return the answer."""
    return await client.ask(Code.SEND_REPLY_MESSAGE_V2, send_header(TOPIC, properties), body)


def test_reply_reaches_the_requester_and_is_stored() -> None:
    """The requester gets body, properties and push time; the responder the offset."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        asker = await asking(embedded, RemotingCommand.response)
        answer = await reply(client, TO_ASKER)
        assert answer.code == ResponseCode.SUCCESS
        stored_at = answer.header(SendMessageResponseHeader)
        assert stored_at.queue_offset == 0
        (push,) = asker.pushed
        header = push.header(ReplyMessageRequestHeader)
        assert (push.code, bytes(push.body)) == (Code.PUSH_REPLY_MESSAGE_TO_CLIENT, b"42")
        properties = decode_properties(header.properties or "")
        assert properties.pop("PUSH_REPLY_TIME") == str(header.store_timestamp)
        assert properties == TO_ASKER
        assert header.producer_group == "p"
        (stored,) = await client.messages(TOPIC)
        assert (stored.body, stored.properties) == (b"42", TO_ASKER)
        assert stored_at.msg_id == stored.offset_message_id
        await asker.connection.close()

    with_broker(scene)


def test_older_reply_request_is_served() -> None:
    """SEND_REPLY_MESSAGE (324), with long names."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        asker = await asking(embedded, RemotingCommand.response)
        header = SendMessageRequestHeader(
            producer_group="p", topic=TOPIC, default_topic="TBW102", default_topic_queue_nums=4, queue_id=-1,
            sys_flag=0, born_timestamp=1, flag=0, properties=encode_properties_text(TO_ASKER),
        )  # fmt: skip
        await client.ask_ok(Code.SEND_REPLY_MESSAGE, header, b"42")
        assert len(asker.pushed) == 1
        await asker.connection.close()

    with_broker(scene)


def test_reply_storage_can_be_disabled() -> None:
    """``storeReplyMessageEnable=false``: the answer has an id nevertheless, which clients need."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        asker = await asking(embedded, RemotingCommand.response)
        answer = await reply(client, TO_ASKER)
        assert answer.header(SendMessageResponseHeader).msg_id == "0"
        assert await client.messages(TOPIC) == []
        await asker.connection.close()

    with_broker(scene, storeReplyMessageEnable="false")


@pytest.mark.parametrize(
    ("properties", "remark"),
    [
        ({}, "reply message properties[REPLY_TO_CLIENT] is null"),
        ({"REPLY_TO_CLIENT": "nobody"}, "push reply message fail, channel of <nobody> not found."),
    ],
)
def test_reply_to_an_unknown_client_is_reported(properties: dict[str, str], remark: str) -> None:
    """It is stored, as in Apache's broker."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        answer = await reply(client, properties)
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)
        assert len(await client.messages(TOPIC)) == 1

    with_broker(scene)


def test_reconnected_requester_gets_its_reply() -> None:
    """Before the broker notices the end of the old connection, the id leads to the new one."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        before = await asking(embedded, RemotingCommand.response)
        asker = await asking(embedded, RemotingCommand.response)
        await before.connection.close()
        await asyncio.sleep(0.1)
        assert (await reply(client, TO_ASKER)).code == ResponseCode.SUCCESS
        assert (len(before.pushed), len(asker.pushed)) == (0, 1)
        await asker.connection.close()

    with_broker(scene)


def test_disconnected_requester_is_unknown() -> None:
    """Its id leads nowhere once its connection has ended."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        asker = await asking(embedded, RemotingCommand.response)
        await asker.connection.close()
        await asyncio.sleep(0.1)
        assert "not found" in ((await reply(client, TO_ASKER)).remark or "")

    with_broker(scene)


def test_refusal_or_timeout_of_the_requester_is_reported_to_the_responder() -> None:
    """After ten seconds without an answer."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        loop = asyncio.get_running_loop()

        def refuse(request: RemotingCommand) -> RemotingCommand:
            return RemotingCommand.response(request, ResponseCode.SYSTEM_ERROR, remark="too late")

        asker = await asking(embedded, refuse)
        answer = await reply(client, TO_ASKER)
        assert (answer.code, answer.remark) == (
            1,
            "push reply message to asker@1 fail: SYSTEM_ERROR (1) too late",
        )
        await asker.connection.close()
        silent = await asking(embedded, lambda request: None)
        began = loop.time()
        assert "push reply message to asker@1 fail" in ((await reply(client, TO_ASKER)).remark or "")
        assert 10 <= loop.time() - began < 11
        await silent.connection.close()

    with_broker(scene)


def test_reply_to_an_unknown_topic_or_queue_is_refused() -> None:
    """With the codes of any send."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        wrong_queue = send_header(TOPIC, TO_ASKER, queue_id=9)
        assert (await client.ask(Code.SEND_REPLY_MESSAGE_V2, wrong_queue)).code == ResponseCode.SYSTEM_ERROR
        unknown = send_header("unknown", TO_ASKER, default_topic="none")
        assert (await client.ask(Code.SEND_REPLY_MESSAGE_V2, unknown)).code == ResponseCode.TOPIC_NOT_EXIST

    with_broker(scene)


def test_pending_replies_are_limited_in_memory() -> None:
    """To 64 MiB in total; one larger than any message is refused at once."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        came: asyncio.Queue[None] = asyncio.Queue()
        silent = await asking(embedded, lambda request: came.put_nowait(None))
        too_large = await reply(client, TO_ASKER, bytes(4 * 1024 * 1024 + 1))
        assert too_large.code == ResponseCode.MESSAGE_ILLEGAL
        body = bytes(4 * 1024 * 1024)
        waiting = []
        for _ in range(16):
            waiting.append(asyncio.ensure_future(reply(client, TO_ASKER, body)))
            await came.get()
        refused = await reply(client, TO_ASKER, body)
        assert refused.code == ResponseCode.SYSTEM_BUSY
        assert "16 replies of 67108864 bytes wait" in (refused.remark or "")
        await asyncio.gather(*waiting)
        await silent.connection.close()

    with_broker(scene)
