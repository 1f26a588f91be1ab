"""Small requests that cause much work: other clients are served meanwhile."""

import asyncio

import pytest

from rocket_broker.embedded import EmbeddedBroker
from rocket_broker.settings.server_settings import MAX_QUEUES
from rocket_remoting.wire.bodies import TopicConfig
from rocket_remoting.wire.codes import RequestCode, ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from rocket_remoting.wire.headers import (
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
)
from tests.end_to_end.raw_client import HELD, RawClient, pull_header, with_broker


async def neighbour_of(embedded: EmbeddedBroker) -> RawClient:
    """Return another client."""
    return await RawClient.connect(embedded.broker.transport, embedded.broker_address)


async def beside(neighbour: RawClient, asking: "asyncio.Future[RemotingCommand]") -> int:
    """Send messages one after the other until a request is answered; return their number."""
    sent = 0
    while not asking.done():
        await neighbour.send("letters")
        sent += 1
    return sent


@pytest.mark.parametrize(
    ("code", "header"),
    [
        (RequestCode.GET_CONSUME_STATS, GetConsumeStatsRequestHeader(consumer_group="g")),
        (RequestCode.GET_BROKER_CONSUME_STATS, GetConsumeStatsInBrokerHeader(is_order=False)),
    ],
)
def test_statistics_of_a_million_queues_do_not_block_others(
    code: int, header: GetConsumeStatsRequestHeader | GetConsumeStatsInBrokerHeader
) -> None:
    """41 requests create twenty topics of 65,536 queues, commit an offset in each, and query the group's progress.

    A too long answer is refused as soon as its length is known.
    """

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        neighbour = await neighbour_of(embedded)
        await client.heartbeat(consumers={"g": {}})
        for number in range(20):
            await client.create_topic(f"wide{number}", MAX_QUEUES)
            assert (await client.commit(1, topic=f"wide{number}")).code == ResponseCode.SUCCESS
        asking = asyncio.ensure_future(client.ask(code, header))
        assert await beside(neighbour, asking) >= 10
        answer = await asking
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "which clients do not read" in (answer.remark or "")
        await neighbour.connection.close()

    with_broker(scene)


def test_full_table_is_returned_while_others_are_served() -> None:
    """Nearly 50,000 topics, groups or offsets."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        broker = embedded.broker
        names = [f"full-{number}" for number in range(49_900)]
        for first in range(0, len(names), 100):
            some = names[first : first + 100]
            broker.topics.create_missing([TopicConfig(topic_name=name) for name in some])
            broker.groups.create_missing(some)
            for name in some:
                broker.offsets.commit(name, name, 0, 0)
        await asyncio.sleep(10)
        neighbour = await neighbour_of(embedded)
        for code in (
            RequestCode.GET_ALL_TOPIC_CONFIG,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
            RequestCode.GET_ALL_CONSUMER_OFFSET,
        ):
            asking = asyncio.ensure_future(client.ask(code))
            assert await beside(neighbour, asking) >= 3, code
            answer = await asking
            assert answer.code == ResponseCode.SUCCESS
            assert names[-1].encode() in bytes(answer.body)
        await neighbour.connection.close()

    with_broker(scene)


def test_writing_half_a_million_offsets_does_not_block_others() -> None:
    """They are written every five seconds, in steps and by a thread."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.create_topic("wide", MAX_QUEUES)
        for group in range(8):
            for queue_id in range(MAX_QUEUES):
                embedded.broker.offsets.commit(f"g{group}", "wide", queue_id, 0)
        for _ in range(20):
            await asyncio.sleep(1)
            await client.send()
        assert await client.committed(group="g7", topic="wide", queue_id=MAX_QUEUES - 1) == 0

    with_broker(scene)


def test_keys_with_equal_hashes_do_not_slow_a_query_down() -> None:
    """`Aa` and `BB` have one hash in Java, so thousands of keys can; the requested one is the oldest."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        neighbour = await neighbour_of(embedded)
        wanted = "AaAaAaAaAaAa"
        await client.send(body=b"wanted", properties={"KEYS": wanted})
        old = embedded.broker.clock.now_ms()
        await asyncio.sleep(10)
        for number in range(300):
            same = "".join("BB" if number >> bit & 1 else "Aa" for bit in range(10))
            keys = " ".join([f"{same}BBAa"] * 300)
            await client.send(properties={"KEYS": keys})
        header = QueryMessageRequestHeader(
            topic="orders", key=wanted, max_num=32, begin_timestamp=0, end_timestamp=old + 5_000
        )
        asking = asyncio.ensure_future(client.ask(RequestCode.QUERY_MESSAGE, header))
        await beside(neighbour, asking)
        answer = await asking
        assert answer.code == ResponseCode.SUCCESS
        assert answer.header(QueryMessageResponseHeader).index_last_update_phyoffset > 0
        assert b"wanted" in bytes(answer.body)
        await neighbour.connection.close()

    with_broker(scene)


def test_message_that_wakes_twelve_thousand_pulls_does_not_block_others() -> None:
    """Each pull is answered with it."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.send()
        neighbours = [await neighbour_of(embedded) for _ in range(3)]
        header = pull_header("orders", 1, sys_flag=HELD, suspend_timeout_millis=60_000)
        pulls = [
            neighbour.connection.invoke_async(RequestCode.PULL_MESSAGE, header, timeout=100_000.0)
            for neighbour in neighbours
            for _ in range(4_000)
        ]
        await asyncio.sleep(1)
        assert len(embedded.broker.pull_request_hold) == len(pulls)
        await client.send(body=b"news")
        assert {answer.code for answer in await asyncio.gather(*pulls)} == {ResponseCode.SUCCESS}
        for neighbour in neighbours:
            await neighbour.connection.close()

    with_broker(scene)
