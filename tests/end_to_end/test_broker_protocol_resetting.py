"""Offsets that others set: reset at the broker (5.x), corrected; and which broker to read from (H11)."""

import asyncio
from typing import Any

import pytest

from rocket_broker.embedded import EmbeddedBroker
from rocket_remoting.bodies import (
    QueryCorrectionOffsetBody,
    ResetOffsetBody,
    SubscriptionGroupConfig,
    decode_body,
)
from rocket_remoting.codes import RequestCode as Code
from rocket_remoting.codes import ResponseCode
from rocket_remoting.headers import QueryCorrectionOffsetHeader, ResetOffsetRequestHeader
from rocket_remoting.message import MessageQueue
from tests.end_to_end.raw_client import COMMITTING, HELD, RawClient, pull_header, with_broker

SERVER_SIDE = {"useServerSideResetOffset": "true"}


async def reset(client: RawClient, **fields: Any) -> Any:
    """Reset group ``g`` in ``orders`` and return the answer."""
    values: dict[str, Any] = {"group": "g", "topic": "orders", "timestamp": 0, "is_force": True}
    return await client.ask(Code.INVOKE_BROKER_TO_RESET_OFFSET, ResetOffsetRequestHeader(**values | fields))


async def consumed(client: RawClient, count: int, *, offset: int) -> None:
    """Store messages and let the group have consumed up to an offset."""
    for _ in range(count):
        await client.send("orders")
    await client.pull("orders", offset, sys_flag=COMMITTING, commit_offset=offset)


def test_offsets_are_reset_without_any_member() -> None:
    """The answer has the new offsets, and the group is there at once."""

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


def test_whoever_consumes_the_queue_is_told_at_its_next_pull() -> None:
    """Once, as an offset that moved; what it commits before counts for nothing."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await consumed(client, 5, offset=5)
        held = asyncio.create_task(client.ask(Code.PULL_MESSAGE, pull_header("orders", 5, sys_flag=HELD)))
        await asyncio.sleep(1)
        await reset(client, queue_id=0, offset=1)
        answer = await client.commit(5)
        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, "Offset has been previously reset")
        told = await client.pull("orders", 5, sys_flag=COMMITTING, commit_offset=5)
        assert (told.code, told.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET")
        assert told.header.next_begin_offset == 1
        assert await client.committed() == 1
        assert len((await client.pull("orders", 1)).bodies) == 4
        await client.commit(3)
        assert await client.committed() == 3
        held.cancel()
        await asyncio.gather(held, return_exceptions=True)

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
def test_a_reset_that_leads_nowhere_is_refused(fields: dict[str, Any], code: int, remark: str) -> None:
    """With 5.x's codes."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await consumed(client, 5, offset=4)
        answer = await reset(client, **fields)
        assert (answer.code, answer.remark) == (code, remark)
        assert await client.committed() == 4

    with_broker(scene, **SERVER_SIDE)


def test_offsets_are_corrected_by_what_all_groups_have_consumed() -> None:
    """The least of them; the greatest number there is where the group to compare with is behind it."""

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


def test_a_consumer_far_behind_is_sent_where_its_group_says() -> None:
    """Only when ``slaveReadEnable`` is set; with a ratio of 0 everybody is far behind who is not at the end."""

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
