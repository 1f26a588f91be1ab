"""Filtering by properties: SQL92 pulls, filters in heartbeats, and refusals."""

import asyncio
import json
from typing import Any

from rocket_broker.embedded import EmbeddedBroker
from rocket_remoting.wire.bodies import CheckClientRequestBody, SubscriptionData
from rocket_remoting.wire.codes import RequestCode as Code
from rocket_remoting.wire.codes import ResponseCode
from rocket_remoting.wire.command import RemotingCommand
from tests.end_to_end.raw_client import HELD, RawClient, pull_header, with_broker

SQL = {"expression_type": "SQL92", "subscription": "price > 10"}
KNOWN = 0
"""Flags of a pull whose subscription heartbeats told."""


async def priced(client: RawClient, *prices: int, topic: str = "orders") -> None:
    """Send messages whose body and property ``price`` are these."""
    for price in prices:
        await client.send(topic, str(price).encode(), properties={"price": str(price)})


def test_sql_pull_returns_matching_messages() -> None:
    """The offset advances over the others, also when none matches."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await priced(client, 5, 20, 7, 30, 8)
        pulled = await client.pull(**SQL)
        assert (pulled.bodies, pulled.header.next_begin_offset) == ([b"20", b"30"], 5)
        nothing = await client.pull(offset=4, **SQL)
        assert (nothing.code, nothing.header.next_begin_offset) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 5)
        assert (await client.pull(offset=1, max_msg_nums=1, **SQL)).header.next_begin_offset == 2

    with_broker(scene)


def test_pull_by_thousands_of_tags_returns_matching_messages() -> None:
    """A list that is too long, or has no tag, is refused."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        for tag in ("a", "4e20", "b", "x"):
            await client.send(body=tag.encode(), properties={"TAGS": tag})
        tags = "||".join(f"{number:x}" for number in range(20_000, 24_000))
        pulled = await client.pull(subscription=f"b||{tags}")
        assert (pulled.bodies, pulled.header.next_begin_offset) == ([b"4e20", b"b"], 4)
        for wrong in ("|" * 2_000, tags * 2):
            assert (await client.pull(subscription=wrong)).code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        await client.heartbeat(consumers={"g": {"orders": f"x||{tags}"}})
        assert (await client.pull(sys_flag=KNOWN, sub_version=1)).bodies == [b"4e20", b"x"]

    with_broker(scene)


def test_held_pull_is_woken_only_by_a_match() -> None:
    """At its timeout the offset has advanced over other messages."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await priced(client, 1)
        loop = asyncio.get_running_loop()
        began = loop.time()

        async def pull(**fields: Any) -> RemotingCommand:
            header = pull_header("orders", 1, sys_flag=HELD, **SQL | fields)
            return await client.ask(Code.PULL_MESSAGE, header)

        by_sql, all_messages = (
            asyncio.create_task(pull()),
            asyncio.create_task(pull(subscription="price > 1")),
        )
        await asyncio.sleep(1)
        await priced(client, 3)
        assert (await all_messages).code == ResponseCode.SUCCESS
        await asyncio.sleep(1)
        assert not by_sql.done()
        await priced(client, 11)
        assert (await by_sql).code == ResponseCode.SUCCESS
        assert loop.time() - began < 3

    with_broker(scene)


def test_periodic_check_advances_a_held_pull_without_matches() -> None:
    """Every five seconds, as in Apache's broker: the consumer pulls again with the next offset."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await priced(client, 1)
        for offset in range(1, 4):
            header = pull_header("orders", offset, sys_flag=HELD, **SQL)
            pull = asyncio.create_task(client.ask(Code.PULL_MESSAGE, header))
            await asyncio.sleep(0)
            await priced(client, 3)
            async with asyncio.timeout(6):
                answer = await pull
            assert (answer.code, answer.remark) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE")

    with_broker(scene)


def test_group_is_filtered_by_its_heartbeats_expression() -> None:
    """A newer version replaces the filter, an older one does not; a pull must not be newer."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await priced(client, 5, 20)

        async def beat(expression: str, version: int) -> None:
            groups = {"g": {"orders": expression}}
            await client.heartbeat(consumers=groups, version=version, expression_type="SQL92")

        await beat("price < 10", 1)
        assert (await client.pull(sys_flag=KNOWN, sub_version=1)).bodies == [b"5"]
        await beat("price > 10", 2)
        assert (await client.pull(sys_flag=KNOWN, sub_version=2)).bodies == [b"20"]
        await beat("price < 10", 1)
        assert (await client.pull(sys_flag=KNOWN, sub_version=1)).bodies == [b"20"]
        assert (await client.pull(sys_flag=KNOWN, sub_version=3)).code == ResponseCode.SUBSCRIPTION_NOT_LATEST
        await beat("price > 10", 3)
        assert (await client.pull(sys_flag=KNOWN, sub_version=3)).bodies == [b"20"]

    with_broker(scene)


def test_invalid_expression_of_a_group_is_an_error_at_each_pull() -> None:
    """With Apache's code; the heartbeat is accepted."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await priced(client, 5)
        await client.heartbeat(consumers={"g": {"orders": "price >"}}, expression_type="SQL92")
        pulled = await client.pull(sys_flag=KNOWN)
        assert pulled.code == ResponseCode.FILTER_DATA_NOT_EXIST
        assert "line 1, column 8: the expression ends too early" in (pulled.remark or "")
        asked = await client.pull(expression_type="SQL92", subscription="price >")
        assert asked.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        assert "column 8" in (asked.remark or "")

    with_broker(scene)


def test_client_can_check_its_expression_in_advance() -> None:
    """CHECK_CLIENT_CONFIG, which Apache's consumers send before they start."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        async def check(expression: str, kind: str = "SQL92") -> tuple[int, str]:
            data = SubscriptionData(topic="orders", sub_string=expression, expression_type=kind)
            body = CheckClientRequestBody(client_id="c", group="g", subscription_data=data)
            answer = await client.ask(Code.CHECK_CLIENT_CONFIG, None, body)
            return answer.code, answer.remark or ""

        assert await check("a = 1") == (ResponseCode.SUCCESS, "")
        assert await check("*", "TAG") == (ResponseCode.SUCCESS, "")
        assert await check("a = ") == (
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            "Invalid MessageSelector. line 1, column 5: the expression ends too early",
        )
        assert (await check("a", "XPATH"))[0] == ResponseCode.SYSTEM_ERROR

    with_broker(scene)


def test_sql_is_refused_without_the_setting() -> None:
    """``enablePropertyFilter=false`` is Apache's default."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await priced(client, 5)
        pulled = await client.pull(**SQL)
        remark = "The broker does not support consumer to filter message by SQL92"
        assert (pulled.code, pulled.remark) == (ResponseCode.SYSTEM_ERROR, remark)
        await client.heartbeat(consumers={"g": {"orders": "price > 1"}}, expression_type="SQL92")
        assert (await client.pull(sys_flag=KNOWN)).remark == remark

    with_broker(scene, enablePropertyFilter="false")


def test_filters_are_stored_in_apaches_format() -> None:
    """A group that left is marked dead, and removed after a day."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.heartbeat(consumers={"g": {"orders": "price > 1"}}, version=7, expression_type="SQL92")
        path = embedded.store_path / "config" / "consumerFilter.json"

        def stored() -> Any:
            return json.loads(path.read_text())["filterDataByTopic"]["orders"]["groupFilterData"]["g"]

        await asyncio.sleep(11)
        first = stored()
        assert first["expression"] == "price > 1"
        assert first["clientVersion"] == 7
        assert len(first["bloomFilterData"]["bitPos"]) == 3
        assert "deadTime" not in first
        await client.connection.close()
        await asyncio.sleep(11)
        assert stored()["deadTime"] > first["bornTime"]
        await asyncio.sleep(25 * 3600)
        assert "orders" not in path.read_text()

    with_broker(scene)


def test_redelivered_messages_are_filtered_if_configured() -> None:
    """By the group's filter of the original topic (``filterSupportRetry``)."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> list[bytes]:
        await client.heartbeat(consumers={"g": {"orders": "price > 10"}}, expression_type="SQL92")
        for price in ("5", "20"):
            properties = {"price": price, "RETRY_TOPIC": "orders"}
            await client.send("%RETRY%g", price.encode(), properties=properties)
        return (await client.pull("%RETRY%g")).bodies

    assert with_broker(scene) == [b"5", b"20"]
    assert with_broker(scene, filterSupportRetry="true") == [b"20"]


def test_costly_filter_checks_few_messages_per_pull() -> None:
    """The loop serves others; the consumer continues at the returned offset."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await priced(client, *[1] * 250)
        costly = " OR ".join(["price=9"] * 650)
        answer = await client.pull(expression_type="SQL92", subscription=costly)
        assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert 0 < answer.header.next_begin_offset < 250

    with_broker(scene)


def test_filter_cost_per_connection_is_limited() -> None:
    """A pull beyond the limit is refused; one of another queue is not."""

    async def scene(client: RawClient, embedded: EmbeddedBroker) -> None:
        await client.send()
        costly = " OR ".join(["a=1"] * 800)

        async def pull(queue_id: int, expression: str) -> int:
            header = pull_header(
                "orders", 1 - queue_id, sys_flag=HELD, expression_type="SQL92", subscription=expression,
                queue_id=queue_id,
            )  # fmt: skip
            return (await client.ask(Code.PULL_MESSAGE, header)).code

        pulls = [asyncio.create_task(pull(0, f"{costly} OR b={n}")) for n in range(2)]
        await asyncio.sleep(0.1)
        assert [task.done() and task.result() for task in pulls] == [False, ResponseCode.SYSTEM_BUSY]
        assert await pull(1, costly) == ResponseCode.PULL_NOT_FOUND
        assert await pulls[0] == ResponseCode.PULL_NOT_FOUND

    with_broker(scene)
