"""Offsets changed by others: reset at the broker (5.x), corrected; and the suggested broker."""

import asyncio
import json
from typing import Any

import pytest

from rocket_broker.embedded import EmbeddedBroker
from rocket_remoting.transports.memory import MemoryTransport
from rocket_remoting.wire.bodies import (
    QueryCorrectionOffsetBody,
    ResetOffsetBody,
    SubscriptionGroupConfig,
    decode_body,
)
from rocket_remoting.wire.codes import RequestCode as Code
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.headers import QueryCorrectionOffsetHeader, ResetOffsetRequestHeader
from rocket_remoting.wire.message import MessageQueue
from tests.end_to_end.raw_client import COMMITTING, HELD, RawClient, pull_header, with_broker

SERVER_SIDE = {"useServerSideResetOffset": "true"}

C_HEARTBEAT = (
    b'{"clientID":"c@1","consumerDataSet":[{"consumeFromWhere":0,"consumeType":1,"groupName":"g","messageModel":1,'
    b'"subscriptionDataSet":[{"subString":"*","subVersion":"1700000000000","topic":"orders"}]}]}\n'
)
"""As Apache's C++ client writes it."""


async def reset(client: RawClient, **fields: Any) -> Any:
    """Reset group ``g`` in ``orders`` and return the answer."""
    values: dict[str, Any] = {"group": "g", "topic": "orders", "timestamp": 0, "is_force": True}
    return await client.ask(Code.INVOKE_BROKER_TO_RESET_OFFSET, ResetOffsetRequestHeader(**values | fields))


async def consumed(client: RawClient, count: int, *, offset: int) -> None:
    """Store messages and let the group have consumed up to an offset."""
    for _ in range(count):
        await client.send("orders")
    await client.pull("orders", offset, sys_flag=COMMITTING, commit_offset=offset)


def test_offsets_are_reset_without_members() -> None:
    """The answer has the new offsets, and the group exists at once."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await consumed(client, 5, offset=4)
        answer = await reset(client)
        queue = MessageQueue("orders", "broker-a", 0)
        assert decode_body(answer.body, ResetOffsetBody).offset_table[queue] == 0
        assert await client.committed() == 0
        assert (await reset(client, queue_id=0, offset=2)).code == ResponseCode.SUCCESS
        assert await client.committed() == 2
        assert (await reset(client, timestamp=-1)).code == ResponseCode.SUCCESS
        assert await client.committed() == 5

    with_broker(scene, **SERVER_SIDE)


def test_consumer_is_notified_of_a_reset_at_its_next_pull() -> None:
    """Once, as a moved offset; its earlier commits are ignored."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await consumed(client, 5, offset=5)
        held = asyncio.create_task(client.ask(Code.PULL_MESSAGE, pull_header("orders", 5, sys_flag=HELD)))
        await asyncio.sleep(1)
        await reset(client, queue_id=0, offset=1)
        answer = await client.commit(5)
        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, "Offset has been previously reset")
        reported = await client.pull("orders", 5, sys_flag=COMMITTING, commit_offset=5)
        assert (reported.code, reported.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET")
        assert reported.header.next_begin_offset == 1
        assert await client.committed() == 1
        assert len((await client.pull("orders", 1)).bodies) == 4
        await client.commit(3)
        assert await client.committed() == 3
        held.cancel()
        await asyncio.gather(held, return_exceptions=True)

    with_broker(scene, **SERVER_SIDE)


def test_held_pull_of_a_former_owner_does_not_consume_the_reset() -> None:
    """The queue moved to another member, which must be notified too."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await consumed(client, 5, offset=5)
        pulls = [
            asyncio.create_task(client.ask(Code.PULL_MESSAGE, pull_header("orders", 5, sys_flag=HELD)))
            for _ in ("of the former member", "of the present one")
        ]
        await asyncio.sleep(1)
        await reset(client, queue_id=0, offset=1)
        for answer in await asyncio.gather(*pulls):
            assert (answer.code, answer.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET")
        assert len((await client.pull("orders", 1)).bodies) == 4
        assert (await client.pull("orders", 5)).code == ResponseCode.PULL_NOT_FOUND

    with_broker(scene, **SERVER_SIDE)


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"topic": "unknown"}, ResponseCode.TOPIC_NOT_EXIST, "Topic unknown does not exist"),
        ({"group": "unknown"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "Group unknown does not exist"),
        (
            {"queue_id": 0, "offset": 99},
            ResponseCode.SYSTEM_ERROR,
            "Target offset 99 not in consume queue range [0-5]",
        ),
    ],
)
def test_impossible_reset_is_refused(fields: dict[str, Any], code: int, remark: str) -> None:
    """With 5.x's codes."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await consumed(client, 5, offset=4)
        answer = await reset(client, **fields)
        assert (answer.code, answer.remark) == (code, remark)
        assert await client.committed() == 4

    with_broker(scene, **SERVER_SIDE)


@pytest.mark.parametrize("force", [False, True])
def test_only_the_named_queue_is_reset(force: bool) -> None:
    """As 5.x's tools request it, with time 0; the other queues are unchanged."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.create_topic("orders", 2)
        for queue_id in (0, 1, 0, 1, 1):
            await client.send(queue_id=queue_id)
        for queue_id, offset in ((0, 2), (1, 3)):
            await client.commit(offset, queue_id=queue_id)
        await client.heartbeat(consumers={"g": {"orders": "*"}})
        answer = await reset(client, queue_id=1, offset=2, is_force=force)
        only = {MessageQueue("orders", "broker-a", 1): 2}
        assert decode_body(answer.body, ResetOffsetBody).offset_table == only
        await asyncio.sleep(0.1)
        assert client.pushed[-1].code == Code.RESET_CONSUMER_CLIENT_OFFSET
        assert decode_body(client.pushed[-1].body, ResetOffsetBody).offset_table == only
        assert [await client.committed(queue_id=queue_id) for queue_id in (0, 1)] == [2, 2]

    with_broker(scene)


def test_named_queue_is_reset_without_members() -> None:
    """The offset is the broker's; nobody must be notified."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await consumed(client, 5, offset=5)
        assert (await reset(client, queue_id=0, offset=2)).code == ResponseCode.SUCCESS
        assert await client.committed() == 2
        assert (await reset(client, queue_id=0, offset=6)).code == ResponseCode.SYSTEM_ERROR
        assert (await reset(client, queue_id=9, offset=0)).code == ResponseCode.SYSTEM_ERROR
        assert await client.committed() == 2

    with_broker(scene)


def test_cpp_client_gets_offsets_as_a_list() -> None:
    """Beside Java's map, whose keys it cannot read. Constants in its heartbeat are numbers."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await consumed(client, 5, offset=5)
        for queue_id in range(1, 4):
            await client.commit(0, queue_id=queue_id)
        await client.heartbeat("java@1", consumers={"g": {"orders": "*"}})
        transport = embedded.broker.transport
        assert isinstance(transport, MemoryTransport)
        c = await RawClient.connect(transport, embedded.broker_address)
        heartbeat = RemotingCommand.request(Code.HEART_BEAT, None, C_HEARTBEAT, oneway=True)
        heartbeat.language = "CPP"
        c.connection._send(heartbeat.encode())
        await asyncio.sleep(1)
        assert (await reset(client)).code == ResponseCode.SUCCESS
        await asyncio.sleep(1)
        table = {MessageQueue("orders", "broker-a", number): 0 for number in range(4)}
        assert decode_body(client.pushed[-1].body, ResetOffsetBody).offset_table == table
        reported = json.loads(c.pushed[-1].body)["offsetTable"]
        assert reported[0] == {"topic": "orders", "brokerName": "broker-a", "queueId": 0, "offset": 0}
        assert [queue["queueId"] for queue in reported] == [0, 1, 2, 3]
        await c.connection.close()

    with_broker(scene)


def test_offsets_are_corrected_by_all_groups_progress() -> None:
    """The minimum of them; the maximum value if the compared group is behind it."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        for queue_id in (0, 1):
            await client.send("orders", queue_id=queue_id)
        for group, queue_id, offset in (("g", 0, 3), ("h", 0, 5), ("i", 0, 1), ("g", 1, 7), ("mine", 1, 2)):
            embedded.broker.offsets.commit(group, "orders", queue_id, offset)

        async def ask(left_out: str, mine: str) -> dict[int, int]:
            header = QueryCorrectionOffsetHeader(filter_groups=left_out, compare_group=mine, topic="orders")
            body = await client.fetch(Code.QUERY_CORRECTION_OFFSET, QueryCorrectionOffsetBody, header)
            return body.correction_offsets

        assert await ask("", "none") == {0: 1, 1: 2}
        assert await ask("i,mine", "none") == {0: 3, 1: 7}
        assert await ask("mine", "mine") == {0: 1, 1: 2**63 - 1}

    with_broker(scene)


def test_slow_consumer_is_sent_to_its_groups_suggested_broker() -> None:
    """Only with ``slaveReadEnable``; with a ratio of 0 every consumer not at the end counts as slow."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> list[int]:
        config = SubscriptionGroupConfig(group_name="g", broker_id=0, which_broker_when_consume_slowly=7)
        embedded.broker.groups.update(config)
        for _ in range(3):
            await client.send("orders")
        pulled = [await client.pull("orders", offset, max_msg_nums=1) for offset in (0, 3)]
        return [answer.header.suggest_which_broker_id for answer in pulled]

    assert with_broker(scene, accessMessageInMemoryMaxRatio="0") == [0, 0]
    assert with_broker(scene, accessMessageInMemoryMaxRatio="0", slaveReadEnable="true") == [7, 7]
    assert with_broker(scene, slaveReadEnable="true") == [0, 0]
